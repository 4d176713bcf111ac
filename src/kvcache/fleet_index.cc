#include "kvcache/fleet_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

namespace deepinfer {
namespace {

constexpr size_t kFirstSlots = 1024;
// Look-ups of a chain are independent cache misses: so many are in flight at once.
constexpr size_t kAhead = 12;

}  // namespace

FleetIndex::FleetIndex(int32_t workers)
    : workers_(workers), words_((static_cast<size_t>(workers) + 63) / 64), stride_(2 * words_ + 1) {
  assert(workers > 0);
  slots_.assign(kFirstSlots * stride_, 0);
  mask_ = kFirstSlots - 1;
}

int64_t FleetIndex::memory_bytes() const { return static_cast<int64_t>(slots_.capacity() * sizeof(uint64_t)); }

size_t FleetIndex::find(uint64_t name) const {
  size_t slot = home(name);
  while (name_at(slot) != 0 && name_at(slot) != name) slot = (slot + 1) & mask_;
  return slot;
}

void FleetIndex::grow() {
  std::vector<uint64_t> old((mask_ + 1) * 2 * stride_, 0);
  old.swap(slots_);
  mask_ = mask_ * 2 + 1;
  for (size_t at = 0; at < old.size(); at += stride_) {
    if (old[at] != 0) std::copy_n(&old[at], stride_, &slots_[find(old[at]) * stride_]);
  }
}

void FleetIndex::set(size_t plane, int32_t worker, std::span<const PageKey> keys) {
  const size_t word = plane + static_cast<size_t>(worker) / 64;
  for (const PageKey& key : keys) {
    if (static_cast<size_t>(used_ + 1) * 10 > (mask_ + 1) * 7) grow();
    const uint64_t name = name_of(key);
    const size_t slot = find(name);
    if (name_at(slot) == 0) {
      slots_[slot * stride_] = name;
      ++used_;
    }
    bits_of(slot)[word] |= uint64_t{1} << (worker % 64);
  }
}

bool FleetIndex::clear_bit(size_t plane, size_t slot, int32_t worker) {
  uint64_t* bits = bits_of(slot);
  bits[plane + static_cast<size_t>(worker) / 64] &= ~(uint64_t{1} << (worker % 64));
  return std::all_of(bits, bits + 2 * words_, [](uint64_t word) { return word == 0; });
}

// Backward shift: what stands behind moves up as far as its home allows, so no tombstones slow a search.
void FleetIndex::erase(size_t slot) {
  size_t gap = slot;
  for (size_t next = (gap + 1) & mask_; name_at(next) != 0; next = (next + 1) & mask_) {
    const size_t wanted = home(name_at(next));
    if (((next - wanted) & mask_) < ((next - gap) & mask_)) continue;
    std::copy_n(&slots_[next * stride_], stride_, &slots_[gap * stride_]);
    gap = next;
  }
  std::fill_n(&slots_[gap * stride_], stride_, 0);
  --used_;
}

void FleetIndex::unset(size_t plane, int32_t worker, std::span<const PageKey> keys) {
  for (const PageKey& key : keys) {
    const size_t slot = find(name_of(key));
    if (name_at(slot) != 0 && clear_bit(plane, slot, worker)) erase(slot);
  }
}

void FleetIndex::clear(int32_t worker) {
  // An erased slot may receive what stood behind it, perhaps from beyond the table's end: such a slot is looked at again, and
  // whatever was moved below the loop's place has lost its bit already.
  for (size_t slot = 0; slot <= mask_;) {
    const bool is_held = name_at(slot) != 0;
    if (is_held) clear_bit(0, slot, worker);
    if (is_held && clear_bit(words_, slot, worker)) {
      erase(slot);
    } else {
      ++slot;
    }
  }
}

void FleetIndex::match(std::span<const PageKey> keys, std::span<int32_t> held) const {
  assert(held.size() == static_cast<size_t>(workers_));
  std::fill(held.begin(), held.end(), 0);
  for (size_t word = 0; word < words_; ++word) {
    const int32_t first = static_cast<int32_t>(word * 64), count = std::min(64, workers_ - first);
    uint64_t alive = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    for (size_t i = 0; i < std::min(kAhead, keys.size()); ++i) __builtin_prefetch(&slots_[home(name_of(keys[i])) * stride_]);
    size_t depth = 0;
    for (; depth < keys.size() && alive != 0; ++depth) {
      if (depth + kAhead < keys.size()) __builtin_prefetch(&slots_[home(name_of(keys[depth + kAhead])) * stride_]);
      const uint64_t* bits = bits_of(find(name_of(keys[depth])));
      uint64_t lost = alive & ~(bits[word] | bits[words_ + word]);
      alive ^= lost;
      for (; lost != 0; lost &= lost - 1) held[static_cast<size_t>(first + std::countr_zero(lost))] = static_cast<int32_t>(depth);
    }
    for (; alive != 0; alive &= alive - 1)
      held[static_cast<size_t>(first + std::countr_zero(alive))] = static_cast<int32_t>(depth);
  }
}

}  // namespace deepinfer
