#include "scheduler/step_log.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

namespace deepinfer {
namespace {

TEST(StepLog, AnyStepComesBack) {
  rc::check([] {
    const auto count = *rc::gen::inRange<int32_t>(1, 6);
    std::vector<std::vector<TokenId>> tokens, drafts;
    std::vector<std::vector<ImageSpan>> images;
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back(*rc::gen::container<std::vector<TokenId>>(*rc::gen::inRange<size_t>(1, 80), rc::gen::inRange(0, 999)));
      drafts.push_back(*rc::gen::container<std::vector<TokenId>>(*rc::gen::inRange<size_t>(0, 6), rc::gen::inRange(0, 999)));
      images.emplace_back();
      if (tokens.back().size() > 10) images.back().push_back({.begin = 2, .rows = 5, .embeddings = std::vector<uint16_t>(20)});
    }
    std::vector<RunningSequence> running;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool drawn = *rc::gen::arbitrary<bool>();
      const auto computed = drawn ? static_cast<Position>(tokens[i].size())
                                  : *rc::gen::inRange<Position>(0, static_cast<Position>(tokens[i].size()));
      running.push_back({.request = i + 1,
                         .slot = static_cast<SlotId>(i),
                         .tokens = tokens[i],
                         .computed = computed,
                         .original_prompt_tokens = *rc::gen::inRange<int64_t>(1, 90),
                         .write_floor = *rc::gen::inRange<Position>(0, 64),
                         .window_floor = *rc::gen::inRange<Position>(0, 64),
                         .cut = *rc::gen::inRange<Position>(0, 80),
                         .images = images[i],
                         .drafts = drafts[i],
                         .draw = drawn ? static_cast<int32_t>(i) : -1,
                         .priority = *rc::gen::inRange(-2, 3),
                         .tenant = *rc::gen::inRange(0, 3)});
    }
    const StepBudget budget{.step_tokens = *rc::gen::inRange(6, 100),
                            .replay = {.mode = ReplayMode::kDecoder, .keep_tokens = 16, .window = 16, .page_tokens = 16},
                            .hidden = 4};
    PromptShares shares;
    StepPlan plan;
    plan_step(running, budget, shares, plan);
    const Status same = replay_step(step_log_line(running, budget, plan));
    RC_ASSERT(same.ok());
    // Another plan is noticed.
    plan.tokens[0] += 1;
    const Status other = replay_step(step_log_line(running, budget, plan));
    RC_ASSERT(!other.ok());
    RC_ASSERT(other.error().message.find("tokens[0] of the plan is") != std::string::npos);
  });
}

TEST(StepLog, DamageIsAnError) {
  const std::vector<TokenId> tokens{1, 2, 3};
  const RunningSequence sequence{.tokens = tokens, .original_prompt_tokens = 3};
  PromptShares shares;
  StepPlan plan;
  plan_step({&sequence, 1}, {.step_tokens = 8}, shares, plan);
  const std::string line = step_log_line({&sequence, 1}, {.step_tokens = 8}, plan);
  EXPECT_TRUE(replay_step(line));
  for (size_t i = 0; i < line.size(); ++i) {
    EXPECT_FALSE(replay_step(line.substr(0, i)));
    std::string bent = line;
    bent[i] = '7';
    static_cast<void>(replay_step(bent));  // no crash; a digit of an unused field may change nothing
  }
  EXPECT_EQ(replay_step("{\"step_log\": 1}").error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace deepinfer
