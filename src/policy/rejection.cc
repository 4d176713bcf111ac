#include "policy/rejection.h"

#include <algorithm>
#include <cstddef>

namespace deepinfer {

namespace {

constexpr double kLeastProbability = 1e-8;

}  // namespace

bool accept_draft(double target_probability, double draft_probability, double u) {
  return u < std::min(1.0, target_probability / std::max(draft_probability, kLeastProbability));
}

void residual_distribution(std::span<const float> target, std::span<const float> draft, std::span<float> out) {
  double mass = 0;
  for (size_t i = 0; i < target.size(); ++i) mass += std::max(0.0, double{target[i]} - double{draft[i]});
  for (size_t i = 0; i < target.size(); ++i) {
    const double more = std::max(0.0, double{target[i]} - double{draft[i]});
    out[i] = mass > kLeastProbability ? static_cast<float>(more / mass) : target[i];
  }
}

}  // namespace deepinfer
