#include "policy/calibration.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

float grid_temperature(int32_t i) { return static_cast<float>(std::exp2(4.0 * i / (kTemperatureGrid - 1) - 2.0)); }

void CalibrationBins::add(double prediction, bool stood) {
  surplus_[std::min(kBins - 1, static_cast<size_t>(prediction * kBins))] += prediction - stood;
  ++count_;
}

double CalibrationBins::error() const {
  double sum = 0;
  for (const double surplus : surplus_) sum += std::abs(surplus);
  return count_ > 0 ? sum / static_cast<double>(count_) : 0;
}

void add_block(const VerifiedBlock& block, const Temperatures& temperatures, PlaceBins& bins) {
  double product = 1;
  for (int32_t k = 0; k < block.observed; ++k) {
    const auto at = static_cast<size_t>(k);
    product *= sigmoid(double{block.logits[at]} / double{temperatures[at]});
    bins[at].add(product, block.accepted > k);
  }
}

double calibration_error(std::span<const VerifiedBlock> blocks, int32_t places, const Temperatures& temperatures) {
  PlaceBins bins;
  for (const VerifiedBlock& block : blocks) add_block(block, temperatures, bins);
  return bins[static_cast<size_t>(places) - 1].error();
}

Temperatures fit_temperatures(std::span<const VerifiedBlock> blocks, int32_t width, int64_t least) {
  Temperatures out = kNoTemperatures;
  std::vector<double> before(blocks.size(), 1.0);  // product of the places fitted so far
  for (int32_t k = 0; k < width; ++k) {
    const auto at = static_cast<size_t>(k);
    int64_t observed = 0;
    for (const VerifiedBlock& block : blocks) observed += block.observed > k;
    out[at] = k > 0 ? out[at - 1] : 1.0f;
    double best = -1;
    for (int32_t i = 0; observed >= least && i < kTemperatureGrid; ++i) {
      const double t = double{grid_temperature(i)};
      CalibrationBins bins;
      for (size_t b = 0; b < blocks.size(); ++b) {
        if (blocks[b].observed > k) bins.add(before[b] * sigmoid(double{blocks[b].logits[at]} / t), blocks[b].accepted > k);
      }
      const double error = bins.error();
      const bool nearer = std::abs(std::log(t)) < std::abs(std::log(double{out[at]}));
      if (best < 0 || error < best || (error == best && nearer)) best = error, out[at] = grid_temperature(i);
    }
    for (size_t b = 0; b < blocks.size(); ++b) before[b] *= sigmoid(double{blocks[b].logits[at]} / double{out[at]});
  }
  return out;
}

}  // namespace deepinfer
