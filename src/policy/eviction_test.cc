#include "policy/eviction.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Eviction, WorthFollowsHowAPageCame) {
  const PageHistory order[] = {
      {.uses = 9, .left = true}, {.uses = 9, .ends = true}, {.aside = true}, {}, {.uses = 1}, {.uses = 2}, {.uses = 100}};
  for (size_t i = 0; i < kPageRanks; ++i) EXPECT_EQ(page_rank(order[i]), i);
  EXPECT_EQ(page_rank({.uses = 1, .aside = true}), 4u) << "it did come back";
  for (size_t rank = 0; rank + 1 < kPageRanks; ++rank)
    EXPECT_GT(staleness(EvictionPolicy::kUses, rank, 100, 50), staleness(EvictionPolicy::kUses, rank + 1, 100, 50)) << rank;
  EXPECT_GT(staleness(EvictionPolicy::kUses, 0, 0, 1'000), staleness(EvictionPolicy::kUses, 3, 500, 1'000))
      << "what was left goes before what is idle";
  EXPECT_EQ(staleness(EvictionPolicy::kLru, 0, 7, 50), staleness(EvictionPolicy::kLru, 5, 7, 50));
}

TEST(Eviction, AConversationContinuesAndAStemIsShared) {
  EXPECT_EQ(addition(20, 10, 2), Addition::kTurn);
  EXPECT_EQ(addition(1, 4, 0), Addition::kTurn) << "little is no document";
  EXPECT_EQ(addition(10, 6, 0), Addition::kAside) << "more of another than of this";
  EXPECT_EQ(addition(10, 1, 3), Addition::kStart) << "a stem";
  EXPECT_EQ(addition(0, 0, 0), Addition::kStart);
}

}  // namespace
}  // namespace deepinfer
