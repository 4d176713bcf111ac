// kvcache/tiers/staging_ring.h - records on their way from the engine's thread to the writer's, in slots made beforehand.
//
// The engine takes a slot, enqueues the copy of a page into it, and lets go of the page: the device works in order, so whatever
// writes to that page later comes after the copy. When the copy was waited for the slot is the writer's. Both sides
// meet in two counters only. A slot is a record as it lies in a file, so that it is written from here: between the device and the
// disk a page is touched by its checksum only.
// Promise: no call allocates, locks or waits. Threads: the engine's side one thread, the writer's side one other.
//
//   if (StagingRing::Slot* slot = ring.take()) { ...; device.download(slot->payload.data(), page, bytes); slot->ticket = ...; }
//   ring.settle(waited, true);                         // engine
//   for (size_t i = 0; i < ring.ready(); ++i) use(ring.at(i));  ring.release(n);   // writer
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"
#include "kvcache/tiers/segment_format.h"
#include "kvcache/tiers/store_disk.h"
#include "ops/device.h"

namespace deepinfer {

class StagingRing {
 public:
  struct Slot {
    RetentionClass retention = RetentionClass::kChat;
    PageKey key, parent;
    uint64_t tenant = 0;
    bool starts = false;  // the first page of its prompts
    std::span<TokenId> tokens;
    std::span<uint8_t> payload;
    std::span<uint8_t> image;  // both lie in it (RecordView)
    Ticket ticket = 0;         // of the copy into `payload`
    bool good = true;          // the copy came through
  };

  StagingRing(size_t slots, size_t page_tokens, size_t payload_bytes)
      : slots_(slots), records_(static_cast<int64_t>(slots) * record_bytes(page_tokens, payload_bytes)) {
    const auto bytes = static_cast<size_t>(record_bytes(page_tokens, payload_bytes));
    std::fill(records_.bytes().begin(), records_.bytes().end(), uint8_t{0});  // no step meets memory for the first time
    for (size_t i = 0; i < slots; ++i) {
      const auto image = records_.bytes().subspan(i * bytes, bytes);
      slots_[i].image = image;
      slots_[i].tokens = {reinterpret_cast<TokenId*>(&image[kRecordTokens]), page_tokens};
      slots_[i].payload = image.subspan(record_payload_at(page_tokens), payload_bytes);
    }
  }

  // Null: the writer is behind. The ticket must be set before settle().
  Slot* take() {
    if (taken_ - released_.load(std::memory_order_acquire) == slots_.size()) return nullptr;
    return &slot(taken_++);
  }
  bool unsettled() const { return taken_ != settled_.load(std::memory_order_relaxed); }
  // What was enqueued up to `waited` has run, well or not. True: the writer has something to do.
  bool settle(Ticket waited, bool good) {
    const size_t before = settled_.load(std::memory_order_relaxed);
    size_t now = before;
    for (; now != taken_ && slot(now).ticket <= waited; ++now) slot(now).good = good;
    settled_.store(now, std::memory_order_release);
    return now != before;
  }

  size_t ready() const { return settled_.load(std::memory_order_acquire) - released_.load(std::memory_order_relaxed); }
  Slot& at(size_t i) { return slot(released_.load(std::memory_order_relaxed) + i); }
  void release(size_t count) { released_.fetch_add(count, std::memory_order_release); }

 private:
  Slot& slot(size_t i) { return slots_[i % slots_.size()]; }

  std::vector<Slot> slots_;
  BlockBuffer records_;
  size_t taken_ = 0;
  std::atomic<size_t> settled_{0}, released_{0};
};

}  // namespace deepinfer
