#include "kvcache/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

namespace deepinfer {
namespace {

TEST(PagePool, RefusesMoreThanIsFreeAndTakesNothing) {
  PagePool pool(3);
  auto two = pool.lease(2);
  ASSERT_TRUE(two);
  const auto refused = pool.lease(2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message, "2 pages wanted, 1 of 3 are free: wait for running requests");
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(pool.balanced());
}

TEST(PagePool, AMovedLeaseGivesBackOnce) {
  PagePool pool(4);
  {
    PageLease kept;
    {
      auto lease = pool.lease(3);
      ASSERT_TRUE(lease);
      kept = *std::move(lease);
    }
    EXPECT_EQ(pool.num_leased(), 3);
  }
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.balanced());
}

TEST(PagePool, AnySequenceOfLeasesKeepsTheBalance) {
  EXPECT_TRUE(rc::check("free + leased = all and no page twice", [](const std::vector<uint8_t>& moves) {
    PagePool pool(9);
    std::vector<PageLease> leases;
    for (const uint8_t move : moves) {
      if (move % 2 == 0 || leases.empty()) {
        auto lease = pool.lease(move / 2 % 6);
        if (lease) leases.push_back(*std::move(lease));
      } else {
        leases.erase(leases.begin() + move / 2 % static_cast<int>(leases.size()));
      }
      RC_ASSERT(pool.balanced());
      std::set<int32_t> held;
      for (const auto& lease : leases) {
        for (const int32_t page : lease.pages()) RC_ASSERT(held.insert(page).second);
      }
      RC_ASSERT(static_cast<int32_t>(held.size()) == pool.num_leased());
    }
    leases.clear();
    RC_ASSERT(pool.num_free() == 9);
  }));
}

TEST(PagePool, SharedAndKeptPagesComeBackWhenTheLastHolderGoes) {
  PagePool pool(4);
  int32_t kept = -1;
  {
    PageLease one = *pool.lease(2);
    kept = one.pages()[0];
    pool.keep(kept);
    PageLease two = pool.share(one.pages());
    one = PageLease();
    EXPECT_EQ(pool.num_leased(), 2);
  }
  EXPECT_EQ(pool.num_leased(), 0);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_FALSE(pool.lease(4));  // cached pages are not free
  { PageLease again = pool.share({&kept, 1}); }
  EXPECT_EQ(pool.stalest_cached(), kept);
  pool.drop(kept);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.balanced());
}

}  // namespace
}  // namespace deepinfer
