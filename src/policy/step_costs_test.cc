#include "policy/step_costs.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer {
namespace {

TEST(StepCosts, MediansLinesAndSlopes) {
  StepCosts costs;
  EXPECT_TRUE(costs.empty());
  EXPECT_EQ(costs.at(3), 0);
  for (const double us : {100, 101, 5000}) costs.add(2, us);
  EXPECT_EQ(costs.at(1), 101);  // one bucket: its value everywhere
  EXPECT_EQ(costs.at(40), 101);
  costs.add(6, 301);
  EXPECT_DOUBLE_EQ(costs.at(4), 201);  // between
  EXPECT_DOUBLE_EQ(costs.at(8), 401);  // the last slope goes on
  EXPECT_DOUBLE_EQ(costs.at(1), 51);
}

TEST(StepCosts, NeverFallsWithRows) {
  std::mt19937 random(1);
  StepCosts costs;
  for (int i = 0; i < 3000; ++i) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 300);
    costs.add(rows, 1000 + 10 * static_cast<double>(rows) + static_cast<double>(random() % 4000));
    double before = 0;
    for (int64_t r = 1; r <= 320; r += 7) {
      ASSERT_GE(costs.at(r), before - 1e-9);
      before = costs.at(r);
    }
  }
  for (const int64_t rows : {20, 100, 250}) EXPECT_NEAR(costs.at(rows), 3000 + 10 * static_cast<double>(rows), 700);
}

TEST(StepCosts, FollowsAChangeWithin64Steps) {
  StepCosts costs;
  for (int i = 0; i < 500; ++i) costs.add(1, 1000), costs.add(6, 1500);
  for (int i = 0; i < 32; ++i) costs.add(1, 2000), costs.add(6, 9000);
  EXPECT_EQ(costs.at(1), 2000);
  EXPECT_EQ(costs.at(6), 9000);
}

TEST(StepCosts, OldSamplesExpire) {
  StepCosts costs;
  costs.add(6, 777);
  for (int i = 0; i < 4096; ++i) costs.add(1, 100);
  EXPECT_EQ(costs.num_points(), 2);
  costs.add(1, 100);
  EXPECT_EQ(costs.num_points(), 1);
}

}  // namespace
}  // namespace deepinfer
