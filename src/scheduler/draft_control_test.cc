#include "scheduler/draft_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace deepinfer {
namespace {

// A world of one sequence whose drafts stand with probability `stands` and whose steps take what `step_us` says.
struct World {
  double stands;
  double pass_us;
  double (*step_us)(int64_t rows);
};

struct Outcome {
  double speed = 0;  // against steps of one token
  int64_t passes = 0, drafts = 0;
};

Outcome simulate(DraftControl& control, const World& world, int64_t steps) {
  std::mt19937 random(9);
  std::uniform_real_distribution<double> uniform;
  SurvivalHistory history{};
  double time = 0, tokens = 0;
  Outcome out;
  for (int64_t step = 0; step < steps; ++step) {
    ProposedBlock block{.limit = 5, .age = step, .history = &history};
    block.logits.fill(static_cast<float>(std::log(world.stands / (1 - world.stands))));
    const bool drafts = control.drafts(1);
    if (drafts) control.choose({&block, 1}, {.sequences = 1});
    int64_t accepted = 0;
    while (accepted < block.length && uniform(random) < world.stands) ++accepted;
    StepOutcome outcome{
        .rows = 1 + block.length, .sequences = 1, .drafts = block.length, .passes = drafts, .emitted = 1 + accepted};
    outcome.verify_us = world.step_us(outcome.rows), outcome.draft_us = drafts ? world.pass_us : 0;
    control.note_step(outcome);
    time += outcome.verify_us + outcome.draft_us;
    tokens += static_cast<double>(outcome.emitted);
    out.passes += drafts, out.drafts += block.length;
  }
  out.speed = tokens * world.step_us(1) / time;
  return out;
}

double flat(int64_t rows) { return 1000 + 10 * static_cast<double>(rows); }
double proportional(int64_t rows) { return 1000 * static_cast<double>(rows); }
double between(int64_t rows) { return 600 + 400 * static_cast<double>(rows); }

void know(DraftControl& control, const World& world) {
  for (const int64_t rows : {1, 3, 6, 16}) control.note_verify_cost(rows, world.step_us(rows));
  control.note_draft_cost(1, world.pass_us);
}

TEST(DraftControl, GoodDraftsOnAFlatCurveAreAllVerified) {
  const World world{0.9, 100, flat};
  DraftControl control({});
  know(control, world);
  EXPECT_GT(simulate(control, world, 4000).speed, 3.5);
  EXPECT_EQ(control.stats().pauses, 0);
  EXPECT_GT(control.stats().gained_tokens, 1000);
}

// Guard rail 1: whatever the drafts and the costs, in the long run at most 3 % are lost.
TEST(DraftControl, NeverMuchSlowerThanWithout) {
  for (const World& world : {World{0.01, 100, flat}, World{0.01, 900, proportional}, World{0.5, 900, proportional},
                             World{0.3, 400, between}, World{0.99, 5000, proportional}, World{0.05, 300, between}}) {
    for (const SpeculationSchedule schedule :
         {SpeculationSchedule::kFixed, SpeculationSchedule::kSync, SpeculationSchedule::kAsync}) {
      DraftControl control({.schedule = schedule});
      know(control, world);
      const Outcome outcome = simulate(control, world, 20000);
      EXPECT_GE(outcome.speed, 0.97) << world.stands << " " << static_cast<int>(schedule);
    }
  }
}

// Where a step costs so much with drafts that not even right ones pay, none is made to find out; another size of batch or other
// costs are another question.
TEST(DraftControl, NothingIsTriedWithoutHope) {
  DraftControl control({});
  for (const int64_t rows : {1, 6, 32, 192}) control.note_verify_cost(rows, rows <= 6 ? flat(rows) : proportional(rows));
  control.note_draft_cost(1, 100);
  for (int step = 0; step < 100; ++step) {
    EXPECT_FALSE(control.drafts(32));
    EXPECT_TRUE(control.rests(32));
    control.pass_over(32);
    control.note_step({.rows = 32, .sequences = 32, .emitted = 32, .verify_us = proportional(32)});
  }
  EXPECT_EQ(control.stats().pauses, 0);
  EXPECT_TRUE(control.drafts(1));
  for (int sample = 0; sample < 64; ++sample) control.note_verify_cost(192, 1.2 * proportional(32));
  EXPECT_TRUE(control.drafts(32));
  EXPECT_TRUE(DraftControl({.mode = SpeculationMode::kOn}).drafts(32)) << "who asks for drafts gets them";
}

TEST(DraftControl, ComesBackWhenDraftsGetBetter) {
  const World bad{0.02, 300, between}, good{0.95, 100, flat};
  DraftControl control({});
  know(control, bad);
  simulate(control, bad, 3000);
  EXPECT_GT(control.stats().pauses, 0);
  simulate(control, good, 6000);
  EXPECT_GT(simulate(control, good, 3000).speed, 3.0);
}

// Against always verifying five: fewer rows, nearly as many tokens, when drafts differ in promise.
TEST(DraftControl, SchedulesByConfidence) {
  for (const SpeculationSchedule schedule : {SpeculationSchedule::kSync, SpeculationSchedule::kAsync}) {
    DraftControl control({.mode = SpeculationMode::kOn, .schedule = schedule});
    for (const int64_t rows : {1, 32, 96, 192}) control.note_verify_cost(rows, 1000 + 60 * static_cast<double>(rows));
    control.note_draft_cost(32, 300);
    std::mt19937 random(4);
    std::vector<SurvivalHistory> histories(32);
    double all_rows = 0, rows = 0, all_tokens = 0, tokens = 0;
    for (int64_t step = 0; step < 200; ++step) {
      std::vector<ProposedBlock> blocks(32);
      for (size_t i = 0; i < blocks.size(); ++i) {
        blocks[i] = {.limit = 5, .age = step + static_cast<int64_t>(i), .history = &histories[i]};
        blocks[i].logits.fill(i % 2 == 0 ? 3.0f : -2.5f);
      }
      ASSERT_TRUE(control.drafts(32));
      control.choose(blocks, {.sequences = 32});
      for (const ProposedBlock& block : blocks) {
        std::array<float, kMaxDraft> survival{};
        survival_of(block.logits, kNoTemperatures, survival);
        for (int32_t k = 0; k < 5; ++k) {
          const double a = double{survival[static_cast<size_t>(k)]};
          all_rows += 1, all_tokens += a;
          if (k < block.length) rows += 1, tokens += a;
        }
      }
    }
    EXPECT_LT(rows, 0.75 * all_rows);
    EXPECT_GT(tokens + 6400, 0.97 * (all_tokens + 6400));
  }
}

// A drafter twice as sure as it should be: seen from the first blocks on, mended by the fit, which later blocks confirm.
TEST(DraftControl, TellsItsCalibrationErrorBeforeAndAfterScaling) {
  DraftControl control({});
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform;
  const auto feed = [&](int blocks) {
    for (int i = 0; i < blocks; ++i) {
      VerifiedBlock block{.observed = 5};
      bool stands = true;
      for (size_t k = 0; k < 5; ++k) {
        block.logits[k] = static_cast<float>(8 * uniform(random) - 2);
        stands = stands && uniform(random) < 1 / (1 + std::exp(-double{block.logits[k]} / 2));
        block.accepted = static_cast<int8_t>(block.accepted + stands);
      }
      control.note_block(block);
    }
    return control.stats();
  };
  const DraftControlStats raw = feed(9999);
  EXPECT_EQ(raw.fits, 0);
  EXPECT_EQ(raw.error_scaled, raw.error_unscaled);
  EXPECT_GT(raw.error_unscaled[0], 0.05);
  EXPECT_EQ(feed(1).fits, 1);
  const DraftControlStats fitted = feed(9000);
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_LT(fitted.error_scaled[k], 0.02) << k;
    EXPECT_LT(fitted.error_scaled[k], fitted.error_unscaled[k]) << k;
  }
  EXPECT_EQ(fitted.error_scaled[5], 0);
}

// Steps that cannot have drafts are part of a pause, and of nothing else.
TEST(DraftControl, APauseGoesOnInStepsPassedOver) {
  DraftControl control({.mode = SpeculationMode::kAuto});
  EXPECT_TRUE(control.rests(0));
  EXPECT_FALSE(control.rests(1));
  control.pass_over(1);
  for (int step = 0; step < 40 && !control.rests(1); ++step) {
    control.note_step({.rows = 1, .sequences = 1, .emitted = 1, .verify_us = 100});
    control.note_step({.rows = 6, .sequences = 1, .drafts = 5, .passes = 1, .emitted = 1, .verify_us = 300, .draft_us = 100});
  }
  ASSERT_TRUE(control.rests(1));
  EXPECT_FALSE(control.rests(32)) << "a pause is of one size of batch";
  EXPECT_FALSE(control.drafts(1));
  int steps = 1;
  for (; control.rests(1) && steps < 5000; ++steps) control.pass_over(1);
  EXPECT_EQ(steps, 1024);
  EXPECT_TRUE(control.drafts(1));
  EXPECT_FALSE(DraftControl({.mode = SpeculationMode::kOn}).rests(1));
}

TEST(DraftControl, EverySixtyFourthBlockIsComplete) {
  DraftControl control({.mode = SpeculationMode::kOn});
  for (const int64_t rows : {1, 6}) control.note_verify_cost(rows, proportional(rows));
  SurvivalHistory history{};
  int64_t complete = 0;
  for (int64_t age = 0; age < 256; ++age) {
    ProposedBlock block{.limit = 4, .age = age, .history = &history};
    block.logits.fill(-3.0f);
    ASSERT_TRUE(control.drafts(1));
    control.choose({&block, 1}, {.sequences = 1});
    EXPECT_EQ(block.length, block.complete ? 4 : 0);
    complete += block.complete;
  }
  EXPECT_EQ(complete, 4);
}

// Where verification is dear only for long contexts, drafts of short ones are verified.
TEST(DraftControl, CostsDependOnTheContext) {
  DraftControl control({.mode = SpeculationMode::kOn});
  control.note_draft_cost(1, 100);
  for (const int64_t rows : {1, 3, 6}) {
    control.note_verify_cost(rows, flat(rows));
    control.note_step({.rows = rows, .context = 20000, .verify_us = proportional(rows)});
  }
  SurvivalHistory history{};
  const auto length_at = [&](int64_t context) {
    ProposedBlock block{.limit = 5, .history = &history};
    block.logits.fill(0.5f);
    control.choose({&block, 1}, {.sequences = 1, .context = context});
    return block.length;
  };
  EXPECT_GT(length_at(500), 0);
  EXPECT_EQ(length_at(20000), 0);
  EXPECT_EQ(length_at(900000), 0) << "nothing is known of it: as the nearest";
}

}  // namespace
}  // namespace deepinfer
