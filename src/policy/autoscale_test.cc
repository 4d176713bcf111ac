#include "policy/autoscale.h"

#include "policy/stall_bound.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace deepinfer {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(Autoscale, UtilisationIsTheScarcest) {
  EXPECT_DOUBLE_EQ(utilisation({.workers = 2, .kv_share = 0.2, .active_share = 0.5, .queue_seconds = 0.4}, 2), 0.5);
  EXPECT_DOUBLE_EQ(utilisation({.workers = 2, .kv_share = 0.2, .active_share = 0.1, .queue_seconds = 3}, 2), 1.5);
  EXPECT_DOUBLE_EQ(utilisation({}, 2), 1);
}

// One worker, a wave of load for three workers, and quiet again: 1 -> 3 -> 1.
TEST(Autoscale, FollowsAWave) {
  Autoscaler scaler({.min = 1, .max = 3});
  int32_t workers = 1, most = 1;
  std::vector<int32_t> after;
  for (int64_t second = 0; second < 3600; ++second) {
    const double load = second > 300 && second < 900 ? 2.2 : 0.3;  // in workers
    workers = scaler.decide(second * kSecond, workers, load / workers);
    most = std::max(most, workers);
    if (second == 360 || second == 500 || second == 899) after.push_back(workers);
  }
  EXPECT_EQ(most, 3);
  EXPECT_EQ(after, (std::vector<int32_t>{1, 3, 3}));
  EXPECT_EQ(workers, 1);
}

// Never in above 80 %, by what it was told then; one step at a time; within its limits.
RC_GTEST_PROP(AutoscaleProperty, NeverInWhileItIsBusy, ()) {
  const ScaleOptions options{.min = 1, .max = *rc::gen::inRange(1, 6), .out_after_us = 5 * kSecond, .window_us = 20 * kSecond};
  Autoscaler scaler(options);
  int32_t workers = 1;
  double load = 0.5;
  for (int64_t second = 0; second < 300; ++second) {
    load = std::max(0.0, load + (*rc::gen::inRange(-10, 11)) * 0.05);
    const double now = load / workers;
    const int32_t wanted = scaler.decide(second * kSecond, workers, now);
    RC_ASSERT(wanted >= options.min && wanted <= options.max && std::abs(wanted - workers) <= 1);
    if (wanted < workers) RC_ASSERT(now <= 0.80);
    workers = wanted;
  }
}

// The sizing of the published service: 77,000 tokens, 4 % of them computed at 60,000 a second, 720 drawn at 14,000 - about 1:1.
TEST(PrefillPerDecode, FollowsWhatRequestsCost) {
  const PhaseRates published{
      .prefill_tokens_s = 60'000, .decode_tokens_s = 14'000, .uncached_prompt_tokens = 3'080, .output_tokens = 720};
  EXPECT_NEAR(prefill_per_decode(published), 0.998, 0.001);
  PhaseRates cold = published;
  cold.uncached_prompt_tokens *= 3;
  EXPECT_NEAR(prefill_per_decode(cold), 2.994, 0.001);
  EXPECT_EQ(prefill_per_decode({.prefill_tokens_s = 1, .decode_tokens_s = 1, .uncached_prompt_tokens = 9}), 0);
}

TEST(StallBound, IsLearntFromWholeSteps) {
  StallBound bound;
  const auto step = [&](int64_t age_us) { bound.note(age_us), bound.note(1'000); };
  for (int i = 0; i < 15; ++i) step(10'000);
  EXPECT_EQ(bound.us(30'000'000), 30'000'000) << "too little was seen";
  for (int i = 0; i < 40; ++i) step(10'000);
  step(900'000);
  EXPECT_EQ(bound.us(30'000'000), 2'000'000) << "one outlier teaches nothing";
  for (int64_t age_us = 100'000; age_us < 25'000'000; age_us += 100'000) bound.note(age_us);
  EXPECT_EQ(bound.us(30'000'000), 2'000'000) << "nor a step that hangs";
  bound.note(0);
  for (int i = 0; i < 64; ++i) step(400'000);
  EXPECT_EQ(bound.us(30'000'000), 8'000'000);
  EXPECT_EQ(bound.us(5'000'000), 5'000'000);
}

}  // namespace
}  // namespace deepinfer
