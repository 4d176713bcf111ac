// policy/eviction.h - which cached page makes room: the one that has been idle longest for what it was worth.
//
// A page that was used again will more likely be used once more, and so will the page that a conversation which goes on has just
// added: it inherits the turns before it. So pages have ranks, and a page of rank r counts as stale as one of rank 1 that has
// been idle for a part of its time. Idle time is counted in pages that came since, so it needs no clock and is the same in a
// simulation. Measured beside LRU, the optimum and what a learned model gives: docs/deep-dives/eviction.md. Threads: pure.
//
//   page_rank({.uses = 2})                              // 3
//   staleness(EvictionPolicy::kUses, 3, 1'000)          // 250
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace deepinfer {

enum class EvictionPolicy { kUses, kLru };

inline constexpr int32_t kMostPageUses = 6;  // more say nothing new
inline constexpr size_t kPageRanks = kMostPageUses + 2;

struct PageHistory {
  int32_t uses = 0;   // by prompts that came after the one which made it, or the turns of the conversation it belongs to
  bool ends = false;  // the end of a sequence: what the next turn changes first
};

inline size_t page_rank(const PageHistory& page) {
  return page.ends ? 0 : 1 + static_cast<size_t>(std::clamp(page.uses, 0, kMostPageUses));
}

// The greater, the sooner it goes.
inline double staleness(EvictionPolicy policy, size_t rank, int64_t idle) {
  if (policy == EvictionPolicy::kLru) return static_cast<double>(idle);
  // A page without any use is worth two: a new one must not look worthless beside those that were lucky early.
  const double worth = rank == 0 ? 0.2 : static_cast<double>(rank) + 1;
  return static_cast<double>(idle) / worth;
}

// What a prompt adds behind `reused` pages belongs to the conversation that left them, if it is short beside them and few others
// continue there; else they are a stem that strangers share.
inline bool continues(int64_t reused_pages, int64_t new_pages, int64_t other_continuations) {
  return reused_pages > 0 && new_pages * 2 <= reused_pages && other_continuations <= 2;
}

}  // namespace deepinfer
