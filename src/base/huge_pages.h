// base/huge_pages.h - an allocator for big tables that are read at random places.
//
// From half a huge page (2 MiB) on, memory comes in whole huge pages and the system is asked to back it with such: one entry
// of the TLB instead of 512 and, where a table is filled once, one page fault instead of 512. Smaller blocks come from the
// usual heap.
//
//   HugeVector<Node> nodes;
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace deepinfer {

template <class T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kHugePage = size_t{2} << 20;

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  static bool is_big(size_t count) { return count * sizeof(T) >= kHugePage / 2; }

  T* allocate(size_t count) {
    if (!is_big(count)) return static_cast<T*>(::operator new(count * sizeof(T)));
    const size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    void* memory = ::operator new (bytes, std::align_val_t{kHugePage});
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    if (!is_big(count)) return ::operator delete(memory);
    ::operator delete (memory, std::align_val_t{kHugePage});
  }
  template <class U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }
};

template <class T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace deepinfer
