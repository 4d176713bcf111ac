// cpu/expert_memory.h - the routed experts that stay in memory, packed, where a checkpoint is larger than that.
//
// A fixed number of slots for one packed weight each. A weight that is used takes a free slot, or that of the weight used least,
// if itself was used more: a long prompt, which takes every expert once, pushes out nothing. Counts are halved now and then, so
// what was hot once does not stay for ever. A weight without a slot is read where the checkpoint is mapped.
// Promise: which weights have slots never changes a bit of a product, and follows from the order of uses alone.
// Threads: one.
//
//   ExpertMemory memory;
//   memory.open(room, slot_bytes, slots, weights);
//   memory.begin();                               // of a product: a slot it has is not taken away within
//   const auto found = memory.use(w.place);
//   if (found.panels && found.is_new) pack(w, found.panels);
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace deepinfer::cpu {

class ExpertMemory {
 public:
  void open(uint8_t* room, int64_t slot_bytes, int64_t slots, int64_t weights);
  const uint8_t* room() const { return room_; }  // null = closed
  int64_t slots() const { return static_cast<int64_t>(owners_.size()); }
  int64_t places() const { return static_cast<int64_t>(entries_.size()); }

  void begin() { ++product_; }
  struct Found {
    uint8_t* panels = nullptr;
    bool is_new = false;  // to be filled by the caller
  };
  Found use(int32_t place);
  // Its slot is free again: what was to fill it did not come.
  void forget(int32_t place);
  bool holds(int32_t place) const { return entries_[static_cast<size_t>(place)].slot >= 0; }

 private:
  struct Entry {
    uint32_t uses = 0;
    int32_t slot = -1;
    uint64_t product = 0;  // of the last use
  };
  // The slot of the weight used least, of those not used by this product, or -1.
  int32_t coldest() const;
  void halve();

  uint8_t* room_ = nullptr;
  int64_t slot_bytes_ = 0;
  std::vector<Entry> entries_;   // by place
  std::vector<int32_t> owners_;  // by slot
  size_t taken_ = 0;             // slots, the first ones; the owner of one that was forgotten is -1
  uint64_t product_ = 0;
  int64_t uses_left_ = 0;  // until counts are halved
};

// Asks the system for the pages of a weight as stored, which it then reads by itself.
void ask_for(const Matrix& w);

}  // namespace deepinfer::cpu
