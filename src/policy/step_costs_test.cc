#include "policy/step_costs.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

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

TEST(StepCosts, TheTableHasWhatWasMeasured) {
  StepCosts costs;
  for (const int64_t rows : {1, 16, 17, 20, 24, 25, 300}) costs.add(rows, 100 * static_cast<double>(rows));
  std::vector<std::pair<int64_t, float>> seen;
  const CostTable table = costs.table();
  for (int32_t i = 0; i < kCostBuckets; ++i) {
    EXPECT_LT(first_rows(i), first_rows(i + 1));
    if (table[static_cast<size_t>(i)] > 0) seen.push_back({first_rows(i), table[static_cast<size_t>(i)]});
  }
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, float>>{
                      {1, 100.f}, {16, 1600.f}, {17, 1700.f}, {20, 2200.f}, {25, 2500.f}, {292, 30000.f}}));
  EXPECT_EQ(ContextCosts::first_context(0), 0);
  EXPECT_EQ(ContextCosts::first_context(1), 1024);
  EXPECT_EQ(ContextCosts::first_context(3), 65536);
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
