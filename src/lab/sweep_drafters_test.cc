#include "lab/sweep_drafters.h"

#include <gtest/gtest.h>

#include <bit>

#include "cpu/cpu_device.h"
#include "lab/sweep_requests.h"
#include "model/oracle_drafter.h"

namespace deepinfer {
namespace {

class NoWorkspace final : public Workspace {
 public:
  const float* logits() const override { return nullptr; }
};

// One sequence of seed 7 with a prompt of three tokens and this answer.
class SweepDrafters : public ::testing::Test {
 protected:
  static constexpr size_t kPrompt = 3;
  const std::vector<TokenId> answer_ = {10, 11, 12, 13, 14, 15, 16, 17};
  std::unique_ptr<Device> device_ = *make_cpu_device({.threads = 1});

  std::array<SampleResult, 5> draft(const Drafter& drafter, size_t answered, std::array<float, 5>& confidence,
                                    size_t before = 0) {
    std::vector<TokenId> tokens(before + kPrompt, 5);
    tokens.insert(tokens.end(), answer_.begin(), answer_.begin() + static_cast<std::ptrdiff_t>(answered));
    const DraftSequence sequence{.last = static_cast<Position>(tokens.size()) - 2, .next = tokens.back(), .tokens = tokens};
    const std::vector<SampleRow> draws(5, SampleRow{.seed = 7});
    std::array<SampleResult, 5> results{};
    NoWorkspace workspace;
    EXPECT_TRUE(drafter.draft({{&sequence, 1}, draws}, {}, workspace, {results.data(), confidence.data()}));
    return results;
  }
};

TEST_F(SweepDrafters, ARecorderKnowsWhatBecameOfEachBlock) {
  OracleDrafter oracle({0x1f, 0x07, 0x00});
  oracle.learn(7, kPrompt, answer_);
  const RecordingDrafter recorder(oracle, *device_);
  std::array<float, 5> confidence{};
  for (const size_t answered : {0, 1, 2, 6}) draft(recorder, answered, confidence);
  const auto passes = recorder.blocks({{7, answer_}}, {{7, kPrompt}});
  ASSERT_EQ(passes.size(), 4u);
  const int8_t accepted[] = {5, 3, 0, 2}, observed[] = {5, 5, 5, 2};  // patterns go by the number of tokens: 3, 4, 5, 9
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(passes[i].size(), 1u);
    EXPECT_EQ(passes[i][0].accepted, accepted[i]) << i;
    EXPECT_EQ(passes[i][0].observed, observed[i]) << i;
  }
  EXPECT_GT(passes[1][0].logits[2], 0);
  EXPECT_LT(passes[1][0].logits[3], 0);
}

TEST_F(SweepDrafters, ASpoiledDrafterLiesInBursts) {
  OracleDrafter oracle({0x1f});
  oracle.learn(7, kPrompt, answer_);
  const SpoiledDrafter early(oracle, *device_);
  std::array<float, 5> confidence{};
  const auto right = draft(early, 1, confidence);
  for (size_t k = 0; k < 5; ++k) EXPECT_EQ(right[k].token, answer_[1 + k]);
  OracleDrafter later({0x1f});
  later.learn(7, 32 + kPrompt, answer_);
  const SpoiledDrafter late(later, *device_);
  const auto wrong = draft(late, 1, confidence, 32);
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_NE(wrong[k].token, answer_[1 + k]);
    EXPECT_GT(confidence[k], 2);
  }
}

TEST_F(SweepDrafters, PatternsGiveSoManyTokensAStep) {
  for (const double tokens : {1.0, 2.5, 3.2, 6.0}) {
    double sum = 0;
    const auto patterns = patterns_for(tokens);
    for (const uint32_t pattern : patterns) sum += 1 + std::popcount(pattern);
    EXPECT_NEAR(sum / static_cast<double>(patterns.size()), tokens, 0.03);
  }
}

TEST_F(SweepDrafters, SlowMachinesGetShorterTraffic) {
  std::vector<Request> requests(8);
  for (Request& request : requests) request.max_tokens = 96;
  requests[1].max_tokens = 24;
  shorten(requests, 2, 200);
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].max_tokens, 96);
  shorten(requests, 2, 48);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].max_tokens, 48);
  EXPECT_EQ(requests[1].max_tokens, 12);
}

}  // namespace
}  // namespace deepinfer
