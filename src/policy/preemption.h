// policy/preemption.h - which running request gives its pages up when the pool is empty.
//
// The one that came last among those of the lowest priority: the oldest request of the highest priority is never thrown
// out while another runs, and alone it fits, so somebody always moves.
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

struct PreemptionCandidate {
  int32_t priority = 0;
  uint64_t arrival = 0;  // larger came later
};

// Index of the victim. REQUIRES: candidates not empty.
size_t choose_victim(std::span<const PreemptionCandidate> candidates);

}  // namespace deepinfer
