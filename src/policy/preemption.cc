#include "policy/preemption.h"

namespace deepinfer {

size_t choose_victim(std::span<const PreemptionCandidate> candidates) {
  size_t victim = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    const auto& a = candidates[i];
    const auto& b = candidates[victim];
    if (a.priority < b.priority || (a.priority == b.priority && a.arrival > b.arrival)) victim = i;
  }
  return victim;
}

}  // namespace deepinfer
