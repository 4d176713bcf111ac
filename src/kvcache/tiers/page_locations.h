// kvcache/tiers/page_locations.h - where each stored page lies: a table in RAM, 24 bytes a slot.
//
// Open addressing with linear probing over the keys' own bits (they are hashes); 3 of 4 slots at most are taken. Pages of a
// segment that is gone are not looked for: they stay as dead slots, which lookups pass over, until the table would
// grow, and leave then. So forgetting a segment costs nothing, and a page costs 32 to 96 bytes, a growing table with its
// copy included.
// Promise: find() and erase() allocate nothing. Threads: one at a time.
//
//   PageLocations locations;
//   locations.insert(key, {.segment = 3, .first_block = 1}, is_live);
//   const PageLocation* at = locations.find(key);
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "kvcache/page_key.h"

namespace deepinfer {

struct PageLocation {
  uint32_t segment = 0, first_block = 0;
  bool operator==(const PageLocation&) const = default;
};

class PageLocations {
 public:
  using IsLive = FunctionRef<bool(uint32_t segment)>;

  // Replaces what was known of the key.
  void insert(const PageKey& key, PageLocation location, IsLive is_live);
  // nullptr when unknown; valid until the next insert or erase.
  const PageLocation* find(const PageKey& key) const;
  // Brings the slot of a key that is asked for soon.
  void prefetch(const PageKey& key) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[home(key)]);
  }
  // Forgets the key, if it still lies there.
  void erase(const PageKey& key, PageLocation location);

  size_t size() const { return size_; }  // pages of dead segments included
  size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }
  size_t peak_memory_bytes() const { return peak_bytes_; }

 private:
  static constexpr uint32_t kEmpty = 0xffffffff;
  struct Slot {
    PageKey key;
    PageLocation location{kEmpty, 0};
  };
  size_t home(const PageKey& key) const { return static_cast<size_t>(key.low) & (slots_.size() - 1); }
  size_t slot_of(const PageKey& key) const;
  void make_room(IsLive is_live);

  std::vector<Slot> slots_;  // a power of two
  size_t size_ = 0, peak_bytes_ = 0;
};

}  // namespace deepinfer
