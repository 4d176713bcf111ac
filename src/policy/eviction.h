// policy/eviction.h - which cached page makes room: the one that has been idle longest for what it was worth.
//
// What a page is worth is how likely it is used once more, and that is told by how it came: a conversation that went on will go
// on; what a prompt adds beside its conversation (a document, what a search brought) rarely comes back, and what a conversation
// left when it took another way hardly ever. So pages have ranks, each with a worth. Idle time is counted in pages that came
// since, so it needs no clock and is the same in a simulation. Measured beside LRU, the optimum and what learned models give:
// docs/deep-dives/eviction.md. Threads: pure.
//
//   page_rank({.uses = 2})                                      // 5
//   staleness(EvictionPolicy::kUses, 5, 1'000, 10'000)          // 500
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer {

enum class EvictionPolicy { kUses, kLru };

struct PageHistory {
  int32_t uses = 0;    // by prompts that came after the one which made it, or the turns of the conversation it belongs to
  bool aside = false;  // added beside a conversation
  bool left = false;   // its conversation went on without it
  bool ends = false;   // the end of a sequence: what the next turn changes first
};

inline constexpr std::array<double, 7> kPageWorths = {0.3, 0.4, 1, 2, 4, 5, 7};
inline constexpr size_t kPageRanks = kPageWorths.size();

inline size_t page_rank(const PageHistory& page) {
  if (page.left) return 0;
  if (page.ends) return 1;
  if (page.uses == 0) return page.aside ? 2 : 3;
  return page.uses < 2 ? 4 : page.uses < 4 ? 5 : 6;
}

// The greater, the sooner it goes; of a pool of so many pages. Nobody comes back at once, so a page of little worth goes before
// its idle time has shown it: all have been idle for a part of the pool.
inline double staleness(EvictionPolicy policy, size_t rank, int64_t idle, int64_t pages) {
  if (policy == EvictionPolicy::kLru) return static_cast<double>(idle);
  return (static_cast<double>(idle) + 0.15 * static_cast<double>(pages)) / kPageWorths[rank];
}

// What a prompt adds behind pages that it reuses.
enum class Addition {
  kStart,  // of another conversation, behind a stem that strangers share
  kTurn,   // of the conversation that left the pages
  kAside,  // much beside it
};
inline Addition addition(int64_t reused_pages, int64_t new_pages, int64_t other_continuations) {
  if (reused_pages == 0 || other_continuations > 2) return Addition::kStart;
  return new_pages <= 4 || new_pages * 2 <= reused_pages ? Addition::kTurn : Addition::kAside;
}

}  // namespace deepinfer
