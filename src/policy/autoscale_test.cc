#include "policy/autoscale.h"

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

}  // namespace
}  // namespace deepinfer
