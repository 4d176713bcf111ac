#include "scheduler/prompt_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "scheduler/scheduler.h"

namespace deepinfer {
namespace {

std::vector<int64_t> divide(const std::vector<PromptWish>& wishes, int64_t rows) {
  PromptShares shares;
  for (const PromptWish& wish : wishes) shares.add(wish);
  shares.divide(rows);
  std::vector<int64_t> out;
  for (size_t i = 0; i < wishes.size(); ++i) out.push_back(shares.rows(i));
  return out;
}

TEST(PromptShares, WhatOneDoesNotNeedGoesOn) {
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(divide({{6800}, {30}}, 512), (Rows{482, 30}));
  EXPECT_EQ(divide({{6800}, {3000}, {900}}, 512), (Rows{170, 171, 171}));
  // Two tenants, one of them with three prompts.
  EXPECT_EQ(divide({{900, 0, 1}, {900, 0, 1}, {20, 0, 1}, {900, 0, 2}}, 400), (Rows{90, 90, 20, 200}));
  // A higher level takes what it wants, but for the eighth of the oldest.
  EXPECT_EQ(divide({{900, 0}, {900, 0}, {900, 1}}, 400), (Rows{50, 0, 350}));
  EXPECT_EQ(divide({{900, 0}, {900, 0}, {100, 1}}, 400), (Rows{150, 150, 100}));
  EXPECT_EQ(divide({}, 400), Rows{});
  EXPECT_EQ(divide({{5}}, 0), Rows{0});
}

std::vector<PromptWish> any_wishes(int32_t most_priority, int32_t tenants) {
  const auto count = *rc::gen::inRange<int32_t>(1, 40);
  std::vector<PromptWish> wishes;
  for (int32_t i = 0; i < count; ++i) {
    const int64_t most = *rc::gen::element<int64_t>(3, 60, 600, 9000);
    wishes.push_back(
        {*rc::gen::inRange<int64_t>(1, most), *rc::gen::inRange(0, most_priority + 1), *rc::gen::inRange(0, tenants)});
  }
  return wishes;
}

TEST(PromptShares, AllIsGivenAwayAndNobodyGetsMoreThanItWants) {
  rc::check([] {
    const auto wishes = any_wishes(3, 5);
    const auto rows = *rc::gen::inRange<int64_t>(0, 3000);
    const auto got = divide(wishes, rows);
    int64_t wanted = 0, given = 0;
    for (size_t i = 0; i < wishes.size(); ++i) {
      RC_ASSERT(got[i] >= 0 && got[i] <= wishes[i].wanted);
      wanted += wishes[i].wanted, given += got[i];
    }
    RC_ASSERT(given == std::min(rows, wanted));
    RC_ASSERT(got[0] >= std::min(wishes[0].wanted, rows / PromptShares::kOldestPart));
  });
}

// Whoever has less than another of its kind, by more than a row, has all it wants; the oldest apart.
TEST(PromptShares, SharesOfATenantAndOfTenantsAreEqual) {
  rc::check([] {
    const auto wishes = any_wishes(1, 4);
    const auto got = divide(wishes, *rc::gen::inRange<int64_t>(0, 3000));
    std::map<std::pair<int32_t, int32_t>, PromptWish> tenants;
    std::map<std::pair<int32_t, int32_t>, int64_t> of_tenant;
    for (size_t i = 1; i < wishes.size(); ++i) {
      const auto key = std::pair(wishes[i].priority, wishes[i].tenant);
      tenants[key].wanted += wishes[i].wanted, of_tenant[key] += got[i];
      for (size_t k = 1; k < wishes.size(); ++k) {
        if (key == std::pair(wishes[k].priority, wishes[k].tenant) && got[i] + 1 < got[k]) RC_ASSERT(got[i] == wishes[i].wanted);
        if (wishes[i].priority > wishes[k].priority && got[k] > 0) RC_ASSERT(got[i] == wishes[i].wanted);
      }
    }
    const auto oldest = std::pair(wishes[0].priority, wishes[0].tenant);
    for (const auto& [a, rows_a] : of_tenant) {
      for (const auto& [b, rows_b] : of_tenant) {
        if (a.first != b.first || a == oldest || b == oldest || rows_a + 1 >= rows_b) continue;
        RC_ASSERT(rows_a == tenants[a].wanted);
      }
    }
  });
}

// Prompts as they run, step after step; new ones come in behind them.
struct Prompts {
  explicit Prompts(std::vector<PromptWish> wishes) : left(std::move(wishes)) {}
  void step(int64_t rows) {
    std::vector<PromptWish> open;
    std::vector<size_t> at;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i].wanted > 0) open.push_back(left[i]), at.push_back(i);
    }
    const auto got = divide(open, rows);
    for (size_t i = 0; i < at.size(); ++i) left[at[i]].wanted -= got[i];
  }
  void arrive(const PromptWish& wish) { left.push_back(wish); }
  int64_t open() const {
    return std::count_if(left.begin(), left.end(), [](const PromptWish& wish) { return wish.wanted > 0; });
  }

  std::vector<PromptWish> left;
};

// Always new ones, long and short, that are more important.
TEST(PromptShares, NobodyWaitsForEver) {
  rc::check([] {
    const auto wishes = any_wishes(3, 3);
    const auto rows = *rc::gen::inRange<int64_t>(64, 600);
    const int64_t eighth = rows / PromptShares::kOldestPart;
    Prompts prompts(wishes);
    int64_t steps = 0;
    for (const PromptWish& wish : wishes) steps += (wish.wanted + eighth - 1) / eighth;
    for (int64_t i = 0; i < steps; ++i) {
      for (int64_t open = prompts.open(); open < 40; ++open)
        prompts.arrive({i % 2 == 0 ? 2 : 4 * rows, 9, static_cast<int32_t>(i % 3)});
      prompts.step(rows);
    }
    for (size_t i = 0; i < wishes.size(); ++i) RC_ASSERT(prompts.left[i].wanted == 0);
  });
}

// Beside k others of its tenant a prompt of n tokens has run when (k + 1) n rows have, and an eighth for the oldest, rounded up
// to steps.
TEST(PromptShares, AShortPromptWaitsForAMultipleOfItsOwnLength) {
  rc::check([] {
    const auto others = *rc::gen::inRange<int64_t>(1, 40);
    const auto length = *rc::gen::inRange<int64_t>(1, 200);
    const auto rows = *rc::gen::inRange<int64_t>(64, 600);
    std::vector<PromptWish> wishes(static_cast<size_t>(others), PromptWish{1'000'000});
    wishes.push_back({length});
    Prompts prompts(wishes);
    int64_t ran = 0;
    for (; prompts.left.back().wanted > 0; ran += rows) prompts.step(rows);
    RC_ASSERT(ran <= 8 * (others + 1) * length / 7 + 2 * rows);
  });
}

// Every step is full as long as there is work, and no prompt is left out of one.
TEST(PromptShares, StepsAreFull) {
  rc::check([] {
    const auto count = *rc::gen::inRange<size_t>(1, 20);
    std::vector<std::vector<TokenId>> tokens;
    for (size_t i = 0; i < count; ++i) tokens.emplace_back(*rc::gen::inRange<size_t>(1, 300), TokenId{7});
    const std::vector<TokenId> drafts(5, 9);
    std::vector<RunningSequence> running;
    int64_t pending = 0, prompts = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto size = static_cast<Position>(tokens[i].size());
      const auto computed = *rc::gen::element<Position>(0, size / 2, size - 1);
      running.push_back({.request = i, .slot = static_cast<SlotId>(i), .tokens = tokens[i], .computed = computed});
      if (size - computed == 1) running.back().drafts = drafts;
      running.back().tenant = *rc::gen::inRange(0, 3);
      pending += size - computed, prompts += size - computed > 1;
    }
    const auto budget = *rc::gen::inRange(static_cast<int32_t>(count), 400);
    PromptShares shares;
    StepPlan plan;
    plan_step(running, {.step_tokens = budget}, shares, plan);
    RC_ASSERT(plan.num_rows() <= budget);
    RC_ASSERT(plan.num_rows() >= std::min<int64_t>(budget, pending));
    if (prompts > 0)
      RC_ASSERT(
          std::any_of(plan.sequences.begin(), plan.sequences.end(), [](const auto& s) { return s.count > 0 && !is_decode(s); }));
    for (size_t i = 1; i < plan.sequences.size(); ++i)
      RC_ASSERT(plan.sequences[i].first_token == plan.sequences[i - 1].first_token + plan.sequences[i - 1].count);
  });
}

}  // namespace
}  // namespace deepinfer
