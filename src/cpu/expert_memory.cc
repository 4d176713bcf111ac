#include "cpu/expert_memory.h"

#include <sys/mman.h>

namespace deepinfer::cpu {
namespace {

// Uses of a weight, on the average, between two times that counts are halved.
constexpr int64_t kUsesPerWeight = 16;

void ask_for_bytes(const void* data, int64_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(data) / kPage * kPage;
  const auto end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

}  // namespace

void ExpertMemory::open(uint8_t* room, int64_t slot_bytes, int64_t slots, int64_t weights) {
  *this = {};
  room_ = room;
  slot_bytes_ = slot_bytes;
  entries_.resize(static_cast<size_t>(weights));
  owners_.resize(static_cast<size_t>(slots));
  uses_left_ = weights * kUsesPerWeight;
}

ExpertMemory::Found ExpertMemory::use(int32_t place) {
  Entry& entry = entries_[static_cast<size_t>(place)];
  ++entry.uses;
  entry.product = product_;
  if (--uses_left_ <= 0) halve();
  Found found;
  if (entry.slot < 0) {
    if (taken_ < owners_.size()) {
      entry.slot = static_cast<int32_t>(taken_++);
    } else {
      const int32_t slot = coldest();
      if (slot < 0) return {};
      const int32_t owner = owners_[static_cast<size_t>(slot)];
      if (owner >= 0 && entries_[static_cast<size_t>(owner)].uses >= entry.uses) return {};
      if (owner >= 0) entries_[static_cast<size_t>(owner)].slot = -1;
      entry.slot = slot;
    }
    owners_[static_cast<size_t>(entry.slot)] = place;
    found.is_new = true;
  }
  found.panels = room_ + entry.slot * slot_bytes_;
  return found;
}

int32_t ExpertMemory::coldest() const {
  int32_t best = -1;
  uint32_t least = UINT32_MAX;
  for (size_t slot = 0; slot < owners_.size(); ++slot) {
    if (owners_[slot] < 0) return static_cast<int32_t>(slot);
    const Entry& entry = entries_[static_cast<size_t>(owners_[slot])];
    if (entry.product != product_ && entry.uses < least) best = static_cast<int32_t>(slot), least = entry.uses;
  }
  return best;
}

void ExpertMemory::forget(int32_t place) {
  Entry& entry = entries_[static_cast<size_t>(place)];
  if (entry.slot >= 0) owners_[static_cast<size_t>(entry.slot)] = -1;
  entry.slot = -1;
}

void ExpertMemory::halve() {
  for (Entry& entry : entries_) entry.uses /= 2;
  uses_left_ = static_cast<int64_t>(entries_.size()) * kUsesPerWeight;
}

void ask_for(const Matrix& w) {
  ask_for_bytes(w.data, int64_t{w.n} * w.k / 2);
  ask_for_bytes(w.scales, int64_t{w.n} * w.k / 32);
}

}  // namespace deepinfer::cpu
