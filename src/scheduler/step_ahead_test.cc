#include "scheduler/step_ahead.h"

#include <gtest/gtest.h>

#include <vector>

#include "scheduler/scheduler.h"

namespace deepinfer {
namespace {

TEST(StepAhead, StaysInFlightOnlyWhenTheNextRowsAreKnown) {
  EXPECT_TRUE(stays_in_flight({.runs_beside = true}));
  EXPECT_FALSE(stays_in_flight({.runs_beside = false}));
  EXPECT_FALSE(stays_in_flight({.runs_beside = true, .drafts = 1}));
  EXPECT_FALSE(stays_in_flight({.runs_beside = true, .drafts_next = true}));
  EXPECT_FALSE(stays_in_flight({.runs_beside = true, .masks_ready = false}));
}

TEST(StepAhead, NoRowBehindTheLastToken) {
  EXPECT_TRUE(goes_on({.draws = true, .answer_tokens = 3, .most_tokens = 5}));
  EXPECT_FALSE(goes_on({.draws = true, .answer_tokens = 4, .most_tokens = 5}));
  EXPECT_TRUE(goes_on({.draws = false, .answer_tokens = 4, .most_tokens = 5}));
  EXPECT_FALSE(goes_on({.ended = true, .draws = true, .answer_tokens = 0, .most_tokens = 5}));
  // A call of finish() may leave less than there is.
  EXPECT_FALSE(goes_on({.draws = true, .answer_tokens = 4, .most_tokens = 0}));
}

// A token that is being drawn is a row like any other, named by its draw.
TEST(StepAhead, ThePlanNamesTheDraw) {
  const std::vector<TokenId> tokens{7, 8, 9}, prompt{1, 2, 3, 4, 5};
  const RunningSequence running[] = {
      {.request = 1, .slot = 0, .tokens = tokens, .computed = 3, .original_prompt_tokens = 2, .draw = 4},
      {.request = 2, .slot = 1, .tokens = prompt, .computed = 2, .original_prompt_tokens = 5}};
  PromptShares shares;
  StepPlan plan;
  plan_step(running, {.step_tokens = 8}, shares, plan);
  EXPECT_EQ(plan.tokens, (std::vector<TokenId>{token_of_draw(4), 3, 4, 5}));
  ASSERT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(plan.sequences[0].begin, 3);
  EXPECT_EQ(plan.sequences[0].num_logits, 1);
  EXPECT_TRUE(is_decode(plan.sequences[0]));
  // The same rows as when the token is known.
  const std::vector<TokenId> later{7, 8, 9, 10};
  const RunningSequence known[] = {{.request = 1, .slot = 0, .tokens = later, .computed = 3, .original_prompt_tokens = 2},
                                   running[1]};
  StepPlan same;
  plan_step(known, {.step_tokens = 8}, shares, same);
  EXPECT_EQ(same.tokens, (std::vector<TokenId>{10, 3, 4, 5}));
  EXPECT_EQ(same.sequences[0].decoder_begin, plan.sequences[0].decoder_begin);
  EXPECT_EQ(same.sequences[0].count, plan.sequences[0].count);
}

}  // namespace
}  // namespace deepinfer
