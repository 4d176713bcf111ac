#include "policy/fairness.h"

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

TEST(TokenAccounts, NumbersAreReused) {
  TokenAccounts accounts;
  const int32_t a = accounts.enter("a");
  accounts.leave(a);
  EXPECT_EQ(accounts.enter("b"), a);
  EXPECT_EQ(accounts.tokens(a), 0);
}

}  // namespace
}  // namespace deepinfer
