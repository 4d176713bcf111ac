// policy/rejection.h - speculative sampling by rejection: the target's distribution, not its path (speculation.md section 2).
//
// A draft d drawn from p_d stands with probability min(1, p_t(d) / p_d(d)); on refusal the token is drawn from what p_t has more
// than p_d. The result has exactly the distribution p_t, provided that nobody decided by d or anything behind it whether d is
// verified (section 5). Which token comes for a seed depends on where blocks end, so the engine's mode is the coupled one;
// this stands for comparison and for the proof of the schedulers.
// Promise: pure.
// Threads: any.
#pragma once

#include <span>

namespace deepinfer {

// `u` uniform in (0, 1): stream 2 of the position's random numbers.
bool accept_draft(double target_probability, double draft_probability, double u);

// out = max(p_t - p_d, 0) normalised; p_t itself when hardly anything is left. `out` may be one of the inputs.
void residual_distribution(std::span<const float> target, std::span<const float> draft, std::span<float> out);

}  // namespace deepinfer
