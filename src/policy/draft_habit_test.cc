#include "policy/draft_habit.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

int32_t drafted_steps(DraftHabit& habit, int32_t steps, double gain) {
  int32_t drafted = 0;
  for (int32_t i = 0; i < steps; ++i) {
    if (!habit.drafts()) continue;
    ++drafted;
    habit.note(gain);
  }
  return drafted;
}

TEST(DraftHabit, GainsAreKeptAndLossesRestEverLonger) {
  DraftHabit good, bad, slight;
  EXPECT_EQ(drafted_steps(good, 1000, 1.2), 1000);
  EXPECT_EQ(drafted_steps(bad, 1000, 0.3), 3 * 8);  // rests of 8, 16 .. 256, 256, 256
  EXPECT_LT(drafted_steps(slight, 1000, 0.9), 8 * 9);
  EXPECT_GT(drafted_steps(bad, 1000, 1.5), 700);  // comes back
}

TEST(DraftHabit, AnUnverifiedBlockRestsAtOnce) {
  DraftHabit habit;
  ASSERT_TRUE(habit.drafts());
  habit.note_hopeless();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(habit.drafts());
  EXPECT_TRUE(habit.drafts());
}

}  // namespace
}  // namespace deepinfer
