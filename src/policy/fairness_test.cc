#include "policy/fairness.h"

#include "policy/fair_lanes.h"
#include "policy/quota.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(TokenAccounts, ChargeWhoWasServed) {
  TokenAccounts accounts;
  const int32_t a = accounts.enter("a"), b = accounts.enter("b");
  EXPECT_EQ(accounts.enter("a"), a);
  accounts.charge(a, 100);
  EXPECT_GT(accounts.tokens(a), accounts.tokens(b));
}

TEST(TokenAccounts, IdlingEarnsNothingAndDebtsStay) {
  TokenAccounts accounts;
  const int32_t a = accounts.enter("a");
  accounts.charge(a, 1000);
  const int32_t late = accounts.enter("late");
  EXPECT_EQ(accounts.tokens(late), 1000);
  accounts.charge(late, 500);
  accounts.leave(late);
  EXPECT_EQ(accounts.tokens(accounts.enter("late")), 1500);
}

TEST(TokenAccounts, WorkingAloneCostsNothing) {
  TokenAccounts accounts;
  accounts.charge(accounts.enter("alice"), 1'000'000);
  accounts.leave(0);
  const int32_t bob = accounts.enter("bob"), alice = accounts.enter("alice");
  EXPECT_EQ(accounts.tokens(alice), accounts.tokens(bob));
}

TEST(TokenAccounts, NumbersAreReused) {
  TokenAccounts accounts;
  const int32_t a = accounts.enter("a");
  accounts.leave(a);
  EXPECT_EQ(accounts.enter("b"), a);
  EXPECT_EQ(accounts.tokens(a), 0);
}

TEST(FairLanes, TheTenantWithTheFewestTokensIsNext) {
  TokenAccounts accounts;
  const int32_t a = accounts.enter("a"), b = accounts.enter("b");
  FairLanes<int> lanes;
  EXPECT_EQ(lanes.next(accounts), nullptr);
  for (int i = 0; i < 3; ++i) lanes.add(0, a, i);
  lanes.add(0, b, 10);
  lanes.add(1, a, 20);
  std::vector<int> order;
  accounts.charge(a, 5);
  while (int* next = lanes.next(accounts)) {
    order.push_back(*next);
    accounts.charge(order.back() == 10 ? b : a, 100);
    lanes.take();
  }
  EXPECT_EQ(order, (std::vector<int>{20, 10, 0, 1, 2})) << "priority, then fewest tokens, then age";
}

TEST(FairLanes, AFloodLeavesRoomForOthers) {
  int64_t a = 0, b = 0;
  while (may_enter(a, a, 40, 8)) ++a;
  EXPECT_EQ(a, 20);
  while (may_enter(b, a + b, 40, 8)) ++b;
  EXPECT_EQ(b, 10);
  EXPECT_TRUE(may_enter(0, a + b, 40, 8));
  EXPECT_TRUE(may_enter(7, 30, 40, 8) && !may_enter(10, 30, 40, 8) && !may_enter(0, 40, 40, 8));
}

TEST(Quota, ABucketLeaksInAMinute) {
  Quota quota;
  const QuotaLimits limits{.requests = 2, .tokens = 100};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(quota.wait_s(limits, 1'000'000), 0);
    quota.charge(1, 0);
  }
  EXPECT_EQ(quota.wait_s(limits, 1'000'000), 30);
  EXPECT_EQ(quota.wait_s(limits, 31'000'000), 0);
  quota.charge(1, 300);
  EXPECT_EQ(quota.wait_s(limits, 61'000'000), 90);
  EXPECT_EQ(quota.wait_s(limits, 151'000'000), 0);
  EXPECT_EQ(quota.wait_s({}, 151'000'000), 0);
}

}  // namespace
}  // namespace deepinfer
