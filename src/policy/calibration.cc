#include "policy/calibration.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

namespace {

constexpr int32_t kBins = 20;

struct Bins {
  std::array<double, kBins> prediction{}, label{};
  double count = 0;

  void add(double p, bool stood) {
    const auto bin = static_cast<size_t>(std::min(kBins - 1, static_cast<int32_t>(p * kBins)));
    prediction[bin] += p;
    label[bin] += stood;
    ++count;
  }
  double error() const {
    double sum = 0;
    for (size_t b = 0; b < kBins; ++b) sum += std::abs(prediction[b] - label[b]);
    return count > 0 ? sum / count : 0;
  }
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

float grid_temperature(int32_t i) { return static_cast<float>(std::exp2(4.0 * i / (kTemperatureGrid - 1) - 2.0)); }

double calibration_error(std::span<const VerifiedBlock> blocks, int32_t places, const Temperatures& temperatures) {
  Bins bins;
  for (const VerifiedBlock& block : blocks) {
    if (block.observed < places) continue;
    double product = 1;
    for (int32_t j = 0; j < places; ++j) {
      const auto at = static_cast<size_t>(j);
      product *= sigmoid(double{block.logits[at]} / double{temperatures[at]});
    }
    bins.add(product, block.accepted >= places);
  }
  return bins.error();
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
      Bins bins;
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
