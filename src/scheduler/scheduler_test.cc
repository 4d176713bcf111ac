#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace deepinfer {
namespace {

std::vector<TokenId> ids(int32_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(Scheduler, DecodeRowsComeFirstAndPromptsShareTheRest) {
  const auto long_prompt = ids(100), answer = ids(21, 500), second_prompt = ids(30, 900);
  const std::vector<RunningSequence> running{{.slot = 4, .tokens = long_prompt, .computed = 90, .original_prompt_tokens = 100},
                                             {.slot = 1, .tokens = answer, .computed = 20, .original_prompt_tokens = 15},
                                             {.slot = 2, .tokens = second_prompt, .computed = 0, .original_prompt_tokens = 30}};
  PromptShares shares;
  StepPlan plan;
  plan_step(running, {.step_tokens = 16, .replay = {.mode = ReplayMode::kOff}}, shares, plan);
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(plan.num_rows(), 16);
  EXPECT_EQ(plan.num_logits(), 1);

  EXPECT_EQ(plan.sequences[0].slot, 1);
  EXPECT_EQ(plan.sequences[0].begin, 20);
  EXPECT_EQ(plan.sequences[0].num_logits, 1);
  EXPECT_EQ(plan.tokens[0], 520);

  EXPECT_EQ(plan.sequences[1].slot, 4);
  EXPECT_EQ(plan.sequences[1].count, 8);  // of 10, and of 30 the rest
  EXPECT_EQ(plan.sequences[1].first_token, 1);
  EXPECT_EQ(plan.sequences[1].num_logits, 0);

  EXPECT_EQ(plan.sequences[2].count, 7);
  EXPECT_EQ(plan.sequences[2].first_token, 9);
  EXPECT_EQ(plan.sequences[2].num_logits, 0);
  EXPECT_EQ(plan.tokens[9], 900);
  EXPECT_EQ(plan.sequences[2].decoder_begin, 0);

  plan_step(running, {.step_tokens = 26, .replay = {.mode = ReplayMode::kOff}}, shares, plan);
  EXPECT_EQ(plan.sequences[1].count, 10);
  EXPECT_EQ(plan.sequences[1].num_logits, 1);  // its last prompt row
  EXPECT_EQ(plan.sequences[2].count, 15);
}

TEST(Scheduler, DraftsStandBehindTheLastToken) {
  const auto answer = ids(21, 500), other = ids(31, 700), prompt = ids(30, 900);
  const std::vector<TokenId> drafts{7, 8, 9, 10, 11};
  const std::vector<RunningSequence> running{
      {.slot = 4, .tokens = prompt, .computed = 0, .original_prompt_tokens = 30},
      {.slot = 1, .tokens = answer, .computed = 20, .original_prompt_tokens = 15, .drafts = drafts},
      {.slot = 2, .tokens = other, .computed = 30, .original_prompt_tokens = 15, .drafts = drafts}};
  PromptShares shares;
  StepPlan plan;
  // Of the 18 rows beyond the two tokens, half are for drafts while a prompt waits.
  plan_step(running, {.step_tokens = 20, .replay = {.mode = ReplayMode::kOff}}, shares, plan);
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(plan.num_rows(), 20);
  EXPECT_EQ(plan.sequences[0].begin, 20);
  EXPECT_EQ(plan.sequences[0].count, 6);
  EXPECT_EQ(plan.sequences[0].num_logits, 6);
  EXPECT_EQ(std::vector<TokenId>(plan.tokens.begin(), plan.tokens.begin() + 6), (std::vector<TokenId>{520, 7, 8, 9, 10, 11}));
  EXPECT_EQ(plan.sequences[1].count, 5);
  EXPECT_EQ(plan.sequences[1].num_logits, 5);
  EXPECT_EQ(plan.sequences[2].count, 9);
  EXPECT_EQ(plan.sequences[2].num_logits, 0);
  // No budget for drafts: every decoding sequence still moves.
  plan_step(running, {.step_tokens = 3, .replay = {.mode = ReplayMode::kOff}}, shares, plan);
  EXPECT_EQ(plan.sequences[0].count, 1);
  EXPECT_EQ(plan.sequences[1].count, 1);
  EXPECT_EQ(plan.sequences[2].count, 1);
}

TEST(Scheduler, ReplayStartsAtTheOriginalPromptMinusKeptTokens) {
  const auto tokens = ids(205);
  const RunningSequence resumed{.slot = 0, .tokens = tokens, .computed = 0, .original_prompt_tokens = 200};
  PromptShares shares;
  StepPlan plan;
  plan_step({&resumed, 1}, {.step_tokens = 64, .replay = {.keep_tokens = 128}}, shares, plan);
  EXPECT_EQ(plan.sequences[0].decoder_begin, 72);
  EXPECT_EQ(plan.sequences[0].window_floor, 72);
  EXPECT_EQ(plan.sequences[0].encoder_window_floor, 0);
  plan_step({&resumed, 1}, {.step_tokens = 64, .replay = {.keep_tokens = 300}}, shares, plan);
  EXPECT_EQ(plan.sequences[0].decoder_begin, 0);
  plan_step({&resumed, 1}, {.step_tokens = 64, .replay = {.mode = ReplayMode::kOff, .keep_tokens = 128}}, shares, plan);
  EXPECT_EQ(plan.sequences[0].decoder_begin, 0);
  EXPECT_EQ(plan.sequences[0].window_floor, 0);
}

TEST(Scheduler, ImagesAreCutLikeTheirRows) {
  const auto tokens = ids(20);
  std::vector<ImageSpan> images(1);
  images[0].begin = 6;
  images[0].rows = 8;
  images[0].embeddings.resize(8 * 4);
  RunningSequence sequence{.slot = 0, .tokens = tokens, .computed = 4, .original_prompt_tokens = 20, .images = images};
  PromptShares shares;
  StepPlan plan;
  plan_step({&sequence, 1}, {.step_tokens = 5, .hidden = 4}, shares, plan);  // rows 4..8
  ASSERT_EQ(plan.images.size(), 1u);
  EXPECT_EQ(plan.images[0].token_begin, 2);
  EXPECT_EQ(plan.images[0].rows, 3);
  EXPECT_EQ(plan.images[0].embeddings, images[0].embeddings.data());
  sequence.computed = 9;
  plan_step({&sequence, 1}, {.step_tokens = 64, .hidden = 4}, shares, plan);  // rows 9..19
  ASSERT_EQ(plan.images.size(), 1u);
  EXPECT_EQ(plan.images[0].token_begin, 0);
  EXPECT_EQ(plan.images[0].rows, 5);
  EXPECT_EQ(plan.images[0].embeddings, images[0].embeddings.data() + 3 * 4);
}

// Any budget runs every token exactly once, in order, and asks for logits exactly at the last one.
TEST(Scheduler, AnyBudgetCoversAPromptOnce) {
  const auto tokens = ids(67);
  for (int32_t budget = 1; budget <= 70; ++budget) {
    RunningSequence sequence{.slot = 3, .tokens = tokens, .computed = 0, .original_prompt_tokens = 67};
    PromptShares shares;
    StepPlan plan;
    int32_t logits = 0;
    std::vector<TokenId> seen;
    while (sequence.computed < 67) {
      plan_step({&sequence, 1}, {.step_tokens = budget, .replay = {.keep_tokens = 16}}, shares, plan);
      ASSERT_EQ(plan.sequences.size(), 1u);
      ASSERT_EQ(plan.sequences[0].begin, sequence.computed);
      seen.insert(seen.end(), plan.tokens.begin(), plan.tokens.end());
      logits += plan.num_logits();
      sequence.computed += plan.sequences[0].count;
    }
    EXPECT_EQ(seen, tokens);
    EXPECT_EQ(logits, 1);
  }
}

}  // namespace
}  // namespace deepinfer
