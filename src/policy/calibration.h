// policy/calibration.h - confidences that mean what they say: Sequential Temperature Scaling (speculation.md section 3).
//
// The drafter's confidence at place k is a logit of "stands if all before it stood". One temperature per place, fitted from left
// to right on verified blocks, makes the product of the first k sigmoids the rate at which k drafts really stand. A temperature
// is positive, so it never changes the order of two drafts at one place. Bias to respect: a place is observed only when it was
// verified, so blocks for the fit must not be chosen by confidence. Promise: pure. fit() costs 81 passes over the blocks for each
// place. Threads: any.
//
//   const Temperatures t = fit_temperatures(blocks, 5);
//   PlaceBins seen; add_block(block, t, seen); seen[0].error();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv_layout.h"

namespace deepinfer {

// What a verification showed of one block.
struct VerifiedBlock {
  std::array<float, kMaxDraft> logits{};
  int8_t observed = 0;  // places verified and not behind the end of the answer
  int8_t accepted = 0;  // drafts 1..accepted stood
};

using Temperatures = std::array<float, kMaxDraft>;

inline constexpr Temperatures kNoTemperatures = [] {
  Temperatures t{};
  t.fill(1.0f);
  return t;
}();

// Places with fewer than `least` blocks take the temperature of the place before (the first: 1).
Temperatures fit_temperatures(std::span<const VerifiedBlock> blocks, int32_t width, int64_t least = 2000);

// How far predictions are from what came: sum over 20 equal bins of (share of the bin) * |mean prediction - mean label|.
class CalibrationBins {
 public:
  void add(double prediction, bool stood);
  double error() const;
  int64_t count() const { return count_; }

 private:
  static constexpr size_t kBins = 20;
  std::array<double, kBins> surplus_{};  // sum of predictions less number of those that stood
  int64_t count_ = 0;
};

// By place: the product of the first sigmoids predicts that so many drafts stand.
using PlaceBins = std::array<CalibrationBins, kMaxDraft>;
void add_block(const VerifiedBlock& block, const Temperatures& temperatures, PlaceBins& bins);

// Of the first `places` of all blocks in which they were observed.
double calibration_error(std::span<const VerifiedBlock> blocks, int32_t places, const Temperatures& temperatures);

// The grid: 81 values from 1/4 to 4, evenly spaced in the logarithm.
float grid_temperature(int32_t i);
inline constexpr int32_t kTemperatureGrid = 81;

}  // namespace deepinfer
