// policy/verification.h - how many drafts of each sequence the next step verifies (speculation.md section 4).
//
// Verifying one more draft adds a row to the step, which makes it slower, and a token with some probability. The calibrated
// confidences give that probability, the measured cost of steps gives the price; both schedulers look for the most tokens per
// second.
//   sync   confidences of this step, drafts by falling probability, stops at the first that does not pay. The early stop keeps it
//          exact: whether a draft is verified depends on no draft behind it and none less likely.
//   async  how many rows comes from confidences of earlier steps, by a full search; which drafts take them from this step's.
// Promise: pure; a warm scheduler allocates nothing.
// Threads: one per object.
//
//   VerificationScheduler scheduler;
//   scheduler.sync({.survival = a, .limits = limits, .width = 5, .sequences = 2}, steps_per_second, lengths);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"

namespace deepinfer {

// Steps per second of a step that verifies with `rows` rows; whatever else shares the step is the caller's to add.
using StepsPerSecond = FunctionRef<double(int64_t rows)>;

struct DraftBlocks {
  std::span<const float> survival;  // [n, width] probability that drafts 1..j all stand; never grows with j
  std::span<const int32_t> limits;  // [n] drafts that may be verified, at most width
  int32_t width = 0;
  int64_t sequences = 0;  // that decode in this step, at least n: each gives a row and a token of its own
};

class VerificationScheduler {
 public:
  // lengths[i] = drafts of block i to verify.
  void sync(const DraftBlocks& blocks, StepsPerSecond steps_per_second, std::span<int32_t> lengths);
  // The number of drafts that gave the most tokens per second with these (old) confidences.
  int64_t capacity(const DraftBlocks& blocks, StepsPerSecond steps_per_second);
  // The `count` most likely drafts; fewer when there are fewer.
  void admit(const DraftBlocks& blocks, int64_t count, std::span<int32_t> lengths);

 private:
  struct Candidate {
    float survival;
    int32_t place;  // j - 1
    int32_t block;
  };
  void sort(const DraftBlocks& blocks);
  std::vector<Candidate> candidates_;
};

// survival[j] = prod_{i<=j} sigmoid(logit_i / temperature_i).
void survival_of(std::span<const float> confidence_logits, std::span<const float> temperatures, std::span<float> survival);

}  // namespace deepinfer
