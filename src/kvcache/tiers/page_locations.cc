#include "kvcache/tiers/page_locations.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

size_t PageLocations::slot_of(const PageKey& key) const {
  size_t at = home(key);
  while (slots_[at].location.segment != kEmpty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

const PageLocation* PageLocations::find(const PageKey& key) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[slot_of(key)];
  return slot.location.segment == kEmpty ? nullptr : &slot.location;
}

void PageLocations::insert(const PageKey& key, PageLocation location, IsLive is_live) {
  if ((size_ + 1) * 4 > slots_.size() * 3) make_room(is_live);
  Slot& slot = slots_[slot_of(key)];
  if (slot.location.segment == kEmpty) ++size_;
  slot = {key, location};
}

void PageLocations::erase(const PageKey& key, PageLocation location) {
  const PageLocation* found = find(key);
  if (!found || *found != location) return;
  // The slots behind it move up, so that no probe ends early.
  const size_t mask = slots_.size() - 1;
  size_t hole = slot_of(key);
  for (size_t at = (hole + 1) & mask; slots_[at].location.segment != kEmpty; at = (at + 1) & mask) {
    const size_t from_home = (at - home(slots_[at].key)) & mask, from_hole = (at - hole) & mask;
    if (from_home < from_hole) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --size_;
}

void PageLocations::make_room(IsLive is_live) {
  const auto lives = [&](const Slot& slot) { return slot.location.segment != kEmpty && is_live(slot.location.segment); };
  const auto live = static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(), lives));
  // At least an eighth of the new table is free, or the next call would come too soon.
  size_t capacity = std::max<size_t>(slots_.size(), 64);
  while (live * 8 > capacity * 5) capacity *= 2;
  std::vector<Slot> old(capacity);
  old.swap(slots_);
  peak_bytes_ = std::max(peak_bytes_, (old.capacity() + slots_.capacity()) * sizeof(Slot));
  size_ = live;
  for (const Slot& slot : old) {
    if (lives(slot)) slots_[slot_of(slot.key)] = slot;
  }
}

}  // namespace deepinfer
