// kvcache/fleet_index.h - which worker holds which page, as a router knows it.
//
// Workers report the keys of pages they stored and removed; a prompt's keys are then looked up for all workers at once. What was
// placed on a worker and is not computed yet is promised. The shared store is one more worker. A table with open addressing
// keeps 64 bits of a key and two bits per worker: what it answers is a prediction, the worker compares keys and token ids
// itself, so a collision costs a wrong guess and nothing else.
// Promise: match() allocates nothing; 24 bytes a slot with up to 64 workers, at most 0.7 of the slots used.
// Threads: one writer or many readers.
//
//   FleetIndex fleet(64);
//   fleet.add(3, keys);
//   fleet.match(prompt_keys, held);   // held[w] = leading pages of the prompt that worker w has or will have
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/page_key.h"

namespace deepinfer {

class FleetIndex {
 public:
  // REQUIRES: workers > 0.
  explicit FleetIndex(int32_t workers);

  int32_t num_workers() const { return workers_; }
  void add(int32_t worker, std::span<const PageKey> keys) { set(0, worker, keys); }
  void remove(int32_t worker, std::span<const PageKey> keys) { unset(0, worker, keys); }
  // Two promises of one page are one: the first end withdraws both.
  void promise(int32_t worker, std::span<const PageKey> keys) { set(words_, worker, keys); }
  void withdraw(int32_t worker, std::span<const PageKey> keys) { unset(words_, worker, keys); }
  // A worker left or began a new epoch: nothing of it is believed. One pass over the table.
  void clear(int32_t worker);

  // held[w] = how many leading keys worker w holds. REQUIRES: held.size() == num_workers().
  void match(std::span<const PageKey> keys, std::span<int32_t> held) const;

  int64_t num_pages() const { return used_; }
  int64_t memory_bytes() const;

 private:
  static uint64_t name_of(const PageKey& key) { return key.low == 0 ? 1 : key.low; }  // 0 marks a free slot
  size_t home(uint64_t name) const { return static_cast<size_t>(name) & mask_; }
  uint64_t* bits_of(size_t slot) { return slots_.data() + slot * stride_ + 1; }
  const uint64_t* bits_of(size_t slot) const { return slots_.data() + slot * stride_ + 1; }
  uint64_t name_at(size_t slot) const { return slots_[slot * stride_]; }
  size_t find(uint64_t name) const;  // its slot, or the free one where it would be
  // `plane`: 0 for what is stored, words_ for what is promised.
  void set(size_t plane, int32_t worker, std::span<const PageKey> keys);
  void unset(size_t plane, int32_t worker, std::span<const PageKey> keys);
  bool clear_bit(size_t plane, size_t slot, int32_t worker);  // true: nobody holds it any more
  void erase(size_t slot);
  void grow();

  const int32_t workers_;
  const size_t words_, stride_;  // 64-bit words of a plane; of a slot
  std::vector<uint64_t> slots_;
  size_t mask_ = 0;
  int64_t used_ = 0;
};

}  // namespace deepinfer
