// Uneven prompts on ranks: equal work in every step, and nobody waits for another rank longer than for its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "policy/ranks.h"
#include "scheduler/scheduler.h"

namespace deepinfer {
namespace {

constexpr int32_t kStepTokens = 512;

struct Live {
  std::vector<TokenId> tokens;
  int64_t prompt = 0, answer = 0;
  Position computed = 0;
  int32_t rank = 0;
  SlotId slot = 0;
};

// An engine without a model: `inside` sequences at once.
class RankedRun {
 public:
  RankedRun(int32_t ranks, size_t inside) : loads_(static_cast<size_t>(ranks)), work_(loads_.size()), inside_(inside) {}

  void answer_all(std::vector<Live> waiting) {
    std::reverse(waiting.begin(), waiting.end());
    while (!waiting.empty() || !live_.empty()) {
      for (; !waiting.empty() && live_.size() < inside_; waiting.pop_back()) admit(std::move(waiting.back()));
      step();
    }
  }
  // What steps took, with the time of the busiest rank, over what they would have with equal work.
  double imbalance() const {
    return busiest_ * static_cast<double>(work_.size()) / std::accumulate(work_.begin(), work_.end(), 0.0);
  }
  // Of the sums over the whole run.
  double max_over_mean() const {
    return *std::max_element(work_.begin(), work_.end()) * static_cast<double>(work_.size()) /
           std::accumulate(work_.begin(), work_.end(), 0.0);
  }
  int32_t most_rows() const { return most_rows_; }  // of a rank in a step

 private:
  void admit(Live sequence) {
    std::fill(loads_.begin(), loads_.end(), RankLoad());
    for (const Live& other : live_) {
      RankLoad& load = loads_[static_cast<size_t>(other.rank)];
      const auto left = static_cast<int64_t>(other.tokens.size()) - other.computed;
      if (left > 1) load.add_prompt(other.computed, left);
      load.kv += static_cast<int64_t>(other.tokens.size()) / 64 + 1, ++load.sequences;
    }
    sequence.rank = choose_rank(loads_, static_cast<int64_t>(sequence.tokens.size()));
    while (std::any_of(live_.begin(), live_.end(), [&](const Live& other) { return other.slot == sequence.slot; }))
      ++sequence.slot;
    live_.push_back(std::move(sequence));
  }

  void step() {
    std::vector<RunningSequence> running;
    for (const Live& one : live_)
      running.push_back({.slot = one.slot,
                         .tokens = one.tokens,
                         .computed = one.computed,
                         .original_prompt_tokens = one.prompt,
                         .rank = one.rank});
    const auto ranks = static_cast<int32_t>(work_.size());
    plan_step(running, {.step_tokens = kStepTokens, .replay = {.mode = ReplayMode::kOff}, .ranks = ranks}, shares_, plan_);
    std::vector<double> work(work_.size());
    std::vector<int32_t> count(work_.size());
    for (const SequenceRows& rows : plan_.sequences) {
      const auto rank = static_cast<size_t>(rows.rank);
      work[rank] += static_cast<double>(work_of(rows.begin, rows.count)), count[rank] += rows.count;
      Live& one = *std::find_if(live_.begin(), live_.end(), [&](const Live& other) { return other.slot == rows.slot; });
      one.computed += rows.count;
      if (rows.num_logits > 0) one.tokens.push_back(7);
    }
    ASSERT_FALSE(plan_.sequences.empty());
    for (size_t r = 0; r < work.size(); ++r) work_[r] += work[r];
    busiest_ += *std::max_element(work.begin(), work.end());
    most_rows_ = std::max(most_rows_, *std::max_element(count.begin(), count.end()));
    std::erase_if(live_, [](const Live& one) { return static_cast<int64_t>(one.tokens.size()) - one.prompt >= one.answer; });
  }

  std::vector<RankLoad> loads_;
  std::vector<double> work_;
  const size_t inside_;
  std::vector<Live> live_;
  PromptShares shares_;
  StepPlan plan_;
  double busiest_ = 0;
  int32_t most_rows_ = 0;
};

// From 32 to 16,384 tokens, the longer the fewer.
std::vector<Live> uneven(uint32_t seed, size_t count, int64_t answer) {
  std::mt19937 random(seed);
  std::vector<Live> out(count);
  for (Live& one : out) {
    one.prompt = static_cast<int64_t>(32 * std::exp2(9.0 * (random() % 1000) / 1000.0));
    one.tokens.assign(static_cast<size_t>(one.prompt), 5);
    one.answer = answer;
  }
  return out;
}

TEST(Ranks, UnevenPromptsAreEqualWorkInEveryStep) {
  for (const int32_t ranks : {2, 4}) {
    double most = 0;
    for (uint32_t seed = 0; seed < 5; ++seed) {
      RankedRun run(ranks, static_cast<size_t>(8 * ranks));
      run.answer_all(uneven(seed, 100 * static_cast<size_t>(ranks), 4));
      EXPECT_LE(run.imbalance(), 1.15) << ranks << " ranks, seed " << seed;
      EXPECT_LE(run.max_over_mean(), 1.15);
      EXPECT_LE(run.most_rows(), kStepTokens / ranks);
      most = std::max(most, run.imbalance());
    }
    RecordProperty("imbalance" + std::to_string(ranks), std::to_string(most));
  }
}

// Long answers beside prompts: now and then only one rank has prompts. The sums are equal all the same.
TEST(Ranks, AnswersSpreadToo) {
  for (const int32_t ranks : {2, 4}) {
    RankedRun run(ranks, static_cast<size_t>(8 * ranks));
    run.answer_all(uneven(9, 60 * static_cast<size_t>(ranks), 60));
    EXPECT_LE(run.max_over_mean(), 1.15) << ranks << " ranks";
    EXPECT_LE(run.most_rows(), kStepTokens / ranks);
    RecordProperty("imbalance" + std::to_string(ranks), std::to_string(run.imbalance()));
  }
}

// A stream beside a long prompt on the other rank waits for no more rows than with one rank and its share of the threads.
TEST(Ranks, ALongPromptOfAnotherRankIsNoLongerAWait) {
  const std::vector<TokenId> prompt(100'000, 5), answer(51, 6);
  for (const Position computed : {0, 50'000}) {
    const std::vector<RunningSequence> running{{.slot = 0, .tokens = prompt, .computed = computed, .rank = 0},
                                               {.slot = 1, .tokens = answer, .computed = 50, .rank = 1}};
    PromptShares shares;
    StepPlan plan;
    plan_step(running, {.step_tokens = kStepTokens, .replay = {.mode = ReplayMode::kOff}, .ranks = 2}, shares, plan);
    ASSERT_EQ(plan.sequences.size(), 2u);
    EXPECT_EQ(plan.sequences[0].count, kStepTokens / 2);
    EXPECT_EQ(plan.sequences[1].num_logits, 1);
  }
}

// Behind much context a row is worth more: the rank gets fewer of them.
TEST(Ranks, ContextCountsAsWork) {
  const std::vector<TokenId> late(100'000, 5), early(5'000, 6);
  const std::vector<RunningSequence> running{{.slot = 0, .tokens = late, .computed = 3 * kRowWork, .rank = 0},
                                             {.slot = 1, .tokens = early, .computed = 0, .rank = 1}};
  PromptShares shares;
  StepPlan plan;
  plan_step(running, {.step_tokens = kStepTokens, .replay = {.mode = ReplayMode::kOff}, .ranks = 2}, shares, plan);
  EXPECT_NEAR(plan.sequences[0].count, kStepTokens / 2 / 4, 2);
  EXPECT_EQ(plan.sequences[1].count, kStepTokens / 2);
}

TEST(Ranks, ANewSequenceGoesWhereLeastIsToDo) {
  std::array<RankLoad, 3> loads{};
  EXPECT_EQ(choose_rank(loads, 100), 0);
  loads[0].add_prompt(0, 1000), loads[1].add_prompt(4000, 200), loads[2].add_prompt(0, 900);  // attention 0.5M, 0.8M, 0.4M
  EXPECT_EQ(choose_rank(loads, 100), 2);
  loads[0].kv = 10, loads[1].kv = 5, loads[2].kv = 5, loads[2].sequences = 1;
  EXPECT_EQ(choose_rank(loads, 1), 1);  // nothing to compute: least KV, then fewest sequences
}

}  // namespace
}  // namespace deepinfer
