#include "policy/draft_governor.h"

#include <gtest/gtest.h>

#include <vector>

namespace deepinfer {
namespace {

// Steps until drafting stops when each takes `price` steps without drafts and gives one token a sequence.
int steps_until_rest(int64_t sequences, double price, int most = 1000) {
  DraftGovernor governor;
  int steps = 0;
  for (; steps < most && governor.drafts(); ++steps) governor.note(1, price, sequences);
  return steps;
}

TEST(DraftGovernor, ALossIsSeenInBlocksNotSteps) {
  EXPECT_EQ(steps_until_rest(1, 2), 4);
  EXPECT_EQ(steps_until_rest(8, 2), 1);
  EXPECT_EQ(steps_until_rest(1, 1.1), 16);
  EXPECT_EQ(steps_until_rest(8, 1.1), 2);
  EXPECT_EQ(steps_until_rest(8, 0.9), 1000) << "a gain goes on";
}

TEST(DraftGovernor, ComparesOftenAtFirst) {
  DraftGovernor governor;
  std::vector<int> plain;
  for (int step = 1; step <= 1024; ++step) {
    if (governor.compares()) plain.push_back(step);
  }
  EXPECT_EQ(plain, (std::vector<int>{8, 16, 32, 64, 128, 256, 512, 1024}));
}

TEST(DraftGovernor, EachFailedLookDoublesThePause) {
  DraftGovernor governor;
  int64_t before = 0;
  for (int look = 0; look < 5; ++look) {
    while (governor.drafts()) governor.note(1, 2, 4);
    int64_t pause = 0;
    for (; !governor.drafts(); ++pause) governor.rest();
    EXPECT_TRUE(look == 0 || pause == 2 * before) << pause;
    before = pause;
  }
  EXPECT_EQ(governor.pauses(), 5);
}

}  // namespace
}  // namespace deepinfer
