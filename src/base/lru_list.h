// base/lru_list.h - small numbers in the order in which they were added, any of them removed in constant time.
//
// Threads: one thread.
//
//   LruList list(100);
//   list.add(7);
//   int32_t oldest = list.oldest();  // 7; -1 when the list is empty
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace deepinfer {

class LruList {
 public:
  static constexpr int32_t kNone = -1;

  // For numbers 0 to capacity - 1.
  explicit LruList(int32_t capacity) : links_(static_cast<size_t>(capacity)) {}

  bool contains(int32_t i) const { return links_[static_cast<size_t>(i)].present; }
  int32_t oldest() const { return oldest_; }
  int32_t newer_than(int32_t i) const { return links_[static_cast<size_t>(i)].newer; }

  // REQUIRES: not in the list.
  void add(int32_t i) {
    DI_CHECK(!contains(i));
    at(i) = {newest_, kNone, true};
    (newest_ == kNone ? oldest_ : at(newest_).newer) = i;
    newest_ = i;
  }
  // REQUIRES: in the list.
  void remove(int32_t i) {
    DI_CHECK(contains(i));
    const Link link = at(i);
    (link.older == kNone ? oldest_ : at(link.older).newer) = link.newer;
    (link.newer == kNone ? newest_ : at(link.newer).older) = link.older;
    at(i).present = false;
  }

 private:
  struct Link {
    int32_t older = kNone, newer = kNone;
    bool present = false;
  };
  Link& at(int32_t i) { return links_[static_cast<size_t>(i)]; }

  std::vector<Link> links_;
  int32_t oldest_ = kNone, newest_ = kNone;
};

}  // namespace deepinfer
