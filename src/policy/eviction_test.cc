#include "policy/eviction.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Eviction, AUsedPageStaysLongerAndAnEndGoesFirst) {
  EXPECT_EQ(page_rank({.uses = 0}), 1u);
  EXPECT_EQ(page_rank({.uses = 100}), kPageRanks - 1);
  EXPECT_EQ(page_rank({.uses = 3, .ends = true}), 0u);
  for (size_t rank = 0; rank + 1 < kPageRanks; ++rank)
    EXPECT_GT(staleness(EvictionPolicy::kUses, rank, 100), staleness(EvictionPolicy::kUses, rank + 1, 100)) << rank;
  EXPECT_LT(staleness(EvictionPolicy::kUses, 1, 100), staleness(EvictionPolicy::kUses, 2, 151));
  EXPECT_EQ(staleness(EvictionPolicy::kLru, 0, 7), staleness(EvictionPolicy::kLru, 5, 7));
}

TEST(Eviction, AConversationContinuesAndAStemIsShared) {
  EXPECT_TRUE(continues(10, 5, 2));
  EXPECT_FALSE(continues(10, 6, 0)) << "more of another than of this";
  EXPECT_FALSE(continues(10, 1, 3)) << "a stem";
  EXPECT_FALSE(continues(0, 0, 0));
}

}  // namespace
}  // namespace deepinfer
