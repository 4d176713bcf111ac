// kvcache/page_transfer.h - pages of a prompt on their way into a cache or out of it, whoever carries them.
//
// A PageLoad brings pages of one prompt, from the store on a disk or from the memory of another engine, and the state at one of
// its borders; what has not come when it is over is computed. A PageSink gets what a prompt's pages hold as they become complete,
// while the rest of the prompt is still computed. So an engine neither knows nor waits for whoever is at the other end.
// Promise: no call of these blocks. Threads: the engine's, between steps; who implements them meets it in atomics or a short
// lock.
//
//   engine.submit(prompt, handler, {.out = exchange->send({...})});        // the engine that computes the prompt
//   engine.submit(rest, handler, {.in = exchange->expect(number)});        // the one that goes on with it
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/prefix_verdict.h"
#include "core/types.h"
#include "kvcache/page_key.h"

namespace deepinfer {

// All there is of a sequence besides its complete pages, behind its computed tokens.
struct WholeState {
  Position tokens = 0;      // 0: none
  Position noted_from = 0;  // the drafter has seen the rows from here on
  uint64_t hash = 0;        // of these tokens, transfer_checksum()
};

// Pages [first, first + pages) of a prompt, the state at one of its borders, and that at its end.
class PageLoad {
 public:
  PageLoad() = default;
  PageLoad(const PageLoad&) = delete;
  PageLoad& operator=(const PageLoad&) = delete;
  virtual ~PageLoad() = default;

  // Everything has come, or nothing more is waited for. What is below is valid from then on.
  virtual bool is_over() = 0;
  // How many of its pages have come and belong to the prompt with these page keys.
  virtual size_t ready(std::span<const PageKey> keys) const = 0;
  virtual const uint8_t* page(size_t i) const = 0;

  size_t first = 0, pages = 0;
  Position border = 0;                  // of the state; 0: none
  std::unique_ptr<uint8_t[]> snapshot;  // null when it has not come
  WholeState whole;
  std::unique_ptr<uint8_t[]> whole_bytes;  // null when it has not come
  MissReason reason = MissReason::kNone;
};

class PageSink {
 public:
  virtual ~PageSink() = default;

  // Where page `index` of the prompt goes, layout.page_bytes; null when it is not wanted.
  virtual uint8_t* page(size_t index, const PageKey& key) = 0;
  // Pages below `end` are there.
  virtual void written(size_t end) = 0;
  // Where the state at a border goes, SequenceStore::snapshot_bytes(), and that at the end, whole_state_bytes().
  virtual uint8_t* state() = 0;
  virtual uint8_t* whole_state() = 0;
  // Nothing more comes. The state of `border` is there, 0: none, and the whole one. Not good: what was not written() is lost.
  virtual void close(Position border, const WholeState& whole, bool good) = 0;
};

// What a request's pages have to do with other engines; null: nothing.
struct PageTransfer {
  std::shared_ptr<PageLoad> in;   // of its prompt, computed elsewhere
  std::shared_ptr<PageSink> out;  // gets those that are computed here
};

// Of what travels.
uint64_t transfer_checksum(std::span<const uint8_t> bytes);

}  // namespace deepinfer
