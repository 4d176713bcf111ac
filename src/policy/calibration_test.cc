#include "policy/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace deepinfer {
namespace {

constexpr int32_t kWidth = 5;

// Blocks whose drafts stand with probability sigmoid(logit / truth[k]).
std::vector<VerifiedBlock> drawn_blocks(int64_t count, const Temperatures& truth, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> logit(1.2, 2.0);
  std::uniform_real_distribution<double> uniform;
  std::vector<VerifiedBlock> blocks(static_cast<size_t>(count));
  for (VerifiedBlock& block : blocks) {
    block.observed = kWidth;
    bool stands = true;
    for (size_t k = 0; k < kWidth; ++k) {
      block.logits[k] = static_cast<float>(logit(random));
      stands = stands && uniform(random) < 1 / (1 + std::exp(-double{block.logits[k]} / double{truth[k]}));
      block.accepted = static_cast<int8_t>(block.accepted + stands);
    }
  }
  return blocks;
}

TEST(Calibration, FindsTheTemperaturesOfItsData) {
  Temperatures truth = kNoTemperatures;
  const int32_t places[kWidth] = {40, 55, 50, 30, 60};
  for (size_t k = 0; k < kWidth; ++k) truth[k] = grid_temperature(places[k]);
  const auto blocks = drawn_blocks(200000, truth, 1), held_out = drawn_blocks(50000, truth, 2);
  const Temperatures fitted = fit_temperatures(blocks, kWidth);
  const double step = std::log(double{grid_temperature(1)} / double{grid_temperature(0)});
  // Each place inherits the survivors of the one before, so the first places are the sharp ones.
  for (size_t k = 0; k < 2; ++k) EXPECT_LE(std::abs(std::log(double{fitted[k]} / double{truth[k]})), 1.01 * step) << k;
  for (int32_t k = 1; k <= kWidth; ++k) {
    const double before = calibration_error(held_out, k, kNoTemperatures), after = calibration_error(held_out, k, fitted);
    EXPECT_LE(after, before + 1e-3) << k;
    EXPECT_LT(after, 0.01) << k;
  }
}

// Fixed data: of 1,000 blocks with the same confidence a given number stand.
TEST(Calibration, ErrorsOfFixedDataBeforeAndAfter) {
  const struct {
    float logit;
    int stood;
  } kGroups[] = {{-4, 119}, {-2, 269}, {0, 500}, {2, 731}, {4, 881}};  // sigmoid(logit / 2) of 1,000
  std::vector<VerifiedBlock> blocks;
  for (const auto& [logit, stood] : kGroups) {
    for (int i = 0; i < 1000; ++i) {
      VerifiedBlock block{.observed = 1, .accepted = i < stood};
      block.logits[0] = logit;
      blocks.push_back(block);
    }
  }
  // The drafter says 0.018, 0.119, 0.5, 0.881 and 0.982: off by 0.101, 0.150, 0, 0.150 and 0.101.
  EXPECT_NEAR(calibration_error(blocks, 1, kNoTemperatures), 0.1003, 5e-4);
  const Temperatures fitted = fit_temperatures(blocks, 1);
  EXPECT_EQ(fitted[0], grid_temperature(60));
  EXPECT_FLOAT_EQ(fitted[0], 2.0f);
  EXPECT_LT(calibration_error(blocks, 1, fitted), 5e-4);
  // What comes block by block is the same figure.
  PlaceBins bins;
  for (const VerifiedBlock& block : blocks) add_block(block, kNoTemperatures, bins);
  EXPECT_EQ(bins[0].error(), calibration_error(blocks, 1, kNoTemperatures));
  EXPECT_EQ(bins[0].count(), 5000);
  EXPECT_EQ(bins[1].count(), 0);
}

TEST(Calibration, TooFewBlocksTakeThePlaceBefore) {
  Temperatures truth = kNoTemperatures;
  truth.fill(2.0f);
  auto blocks = drawn_blocks(5000, truth, 3);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i >= 100) blocks[i].observed = 1, blocks[i].accepted = std::min<int8_t>(blocks[i].accepted, 1);
  }
  const Temperatures fitted = fit_temperatures(blocks, kWidth);
  EXPECT_NEAR(fitted[0], 2.0f, 0.3f);
  for (size_t k = 1; k < kWidth; ++k) EXPECT_EQ(fitted[k], fitted[0]);
  EXPECT_EQ(fit_temperatures({}, kWidth), kNoTemperatures);
}

TEST(Calibration, TheGridHasItsEndsAndOne) {
  EXPECT_FLOAT_EQ(grid_temperature(0), 0.25f);
  EXPECT_FLOAT_EQ(grid_temperature(40), 1.0f);
  EXPECT_FLOAT_EQ(grid_temperature(80), 4.0f);
}

}  // namespace
}  // namespace deepinfer
