// Speculation changes nothing but speed: whatever is drafted and however many drafts are verified, an answer keeps its tokens,
// log-probabilities and end (speculation.md section 8). Here the engine's own bookkeeping, on the scripted model;
// speculation_same_bytes_test.cc has the real one.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/scripted_model.h"
#include "tests/speculation_harness.h"

namespace deepinfer {
namespace {

constexpr const char* kHashScript = R"({"scripted": 1, "vocab": 67, "context": 256, "page_tokens": 16}
{"hash": {"tokens": 200, "seed": 5}})";

// ---- the scripted model: the engine's own bookkeeping

class ScriptedWorld {
 public:
  explicit ScriptedWorld(const char* device = "cpu", const char* script = kHashScript)
      : device_(device_named(device, 1)), model_(value(parse_script(script, "speculation"))) {}
  std::unique_ptr<Engine> engine(SpeculationOptions speculation, EngineOptions options = {}) {
    options.speculation = speculation;
    if (options.pages == 0) options.context = 128;
    return value(Engine::create(*device_, model_, options));
  }
  Outcome run(const std::vector<Request>& requests, SpeculationOptions speculation, EngineOptions options = {}) {
    const auto made = engine(speculation, options);
    return run_requests(*made, requests);
  }

 private:
  std::unique_ptr<Device> device_;
  ScriptedModel model_;
};

std::vector<Request> hash_requests(int32_t count) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    requests.push_back(
        mixed_request(random, 67, 1 + static_cast<int32_t>(random() % 20), 1 + static_cast<int32_t>(random() % 24)));
    // Some answers end by themselves, at each place of a block.
    if (i % 2 == 0) requests.back().stop_ids = {1, 10, 20, 30};
  }
  return requests;
}

TEST(EngineSpeculation, EveryPatternWithStopsPenaltiesAndAFullPool) {
  const auto requests = hash_requests(60);
  for (const char* device : {"cpu", "delayed"}) {
    ScriptedWorld world(device);
    const Outcome alone = world.run(requests, kSpeculationOff);
    OracleDrafter every(every_pattern()), right({0x1f}), wrong({0});
    for (OracleDrafter* drafter : {&every, &right, &wrong}) learn(*drafter, requests, alone);
    for (int32_t width = 1; width <= 5; ++width) {
      expect_equal(world.run(requests, drafting(width, &every)), alone, "width " + std::to_string(width));
    }
    const Outcome fast = world.run(requests, drafting(5, &right)), slow = world.run(requests, drafting(5, &wrong));
    expect_equal(fast, alone, "always right");
    expect_equal(slow, alone, "always wrong");
    EXPECT_EQ(sum(slow.stats.speculation.accepted), 0);
    EXPECT_GT(sum(slow.stats.speculation.verified), 0);
    for (size_t k = 0; k < kMaxDraft; ++k) {
      EXPECT_LE(fast.stats.speculation.accepted[k], fast.stats.speculation.verified[k]);
      EXPECT_LE(fast.stats.speculation.verified[k], fast.stats.speculation.drafted[k]);
    }
    EXPECT_GT(*std::ranges::max_element(fast.stats.speculation.step_costs[0]), 0);
    // Behind the end of an answer it knows nothing.
    EXPECT_GT(10 * sum(fast.stats.speculation.accepted), 9 * sum(fast.stats.speculation.verified));
    // A schedule that believes confidences which say the contrary of what is right, and one that turns drafting off and on.
    OracleDrafter liar(every_pattern(), 5, false);
    learn(liar, requests, alone);
    for (const SpeculationSchedule schedule : {SpeculationSchedule::kSync, SpeculationSchedule::kAsync}) {
      expect_equal(world.run(requests, drafting(5, &liar, schedule)), alone, "schedule");
      SpeculationOptions automatic = drafting(5, &every, schedule);
      automatic.mode = SpeculationMode::kAuto;
      expect_equal(world.run(requests, automatic), alone, "auto");
    }
    expect_equal(world.run(requests, drafting(5, &every), {.max_batch = 4, .step_tokens = 6, .context = 48, .pages = 5}), alone,
                 "full pool, small chunks");
  }
}

TEST(EngineSpeculation, RightDraftsSaveSteps) {
  Request request;
  request.prompt = {4, 5}, request.max_tokens = 25, request.sampling.seed = 9;
  ScriptedWorld world;
  const Outcome alone = world.run({request}, kSpeculationOff);
  OracleDrafter drafter({0x1f});
  drafter.learn(9, 2, alone.answers[0].tokens);
  const Outcome run = world.run({request}, drafting(5, &drafter), {.step_tokens = 32});
  expect_equal(run, alone, "always right");
  EXPECT_EQ(alone.stats.steps, 25);
  EXPECT_EQ(run.stats.steps, 5);  // the prompt gives one token, four blocks of six the rest
  request.speculation.max_draft = 2;
  EXPECT_EQ(world.run({request}, drafting(5, &drafter), {.step_tokens = 32}).stats.steps, 9);
  request.speculation.max_draft = 0;
  EXPECT_EQ(world.run({request}, drafting(5, &drafter)).stats.steps, 25);
}

TEST(EngineSpeculation, AFitIsTold) {
  std::vector<Request> requests = hash_requests(48);
  for (Request& request : requests) request.max_tokens = 500, request.stop_ids.clear();
  ScriptedWorld world("cpu", R"({"scripted": 1, "vocab": 67, "context": 1024, "page_tokens": 16}
{"hash": {"tokens": 600, "seed": 5}})");
  const EngineOptions sizes{.max_batch = 16, .step_tokens = 64, .queue_limit = 64, .context = 1024, .pages = 16 * 64};
  const Outcome alone = world.run(requests, kSpeculationOff, sizes);
  OracleDrafter drafter({0x1});
  learn(drafter, requests, alone);
  SpeculationOptions options = drafting(2, &drafter);
  int fits = 0;
  options.fitted = [&](const Temperatures& fit) { fits += fit[0] > 0 && fit[0] != 1.0f; };
  const Outcome run = world.run(requests, options, sizes);
  expect_equal(run, alone, "with fits");
  EXPECT_GT(fits, 0);
  EXPECT_EQ(fits, run.stats.speculation.control.fits);
}

// The handler ends the answer with a token in the middle of a block: nothing behind it is shown or counted.
TEST(EngineSpeculation, FinishAndCancelInsideABlock) {
  Request request;
  request.prompt = {4, 5}, request.max_tokens = 20, request.sampling.seed = 9;
  ScriptedWorld world;
  const Outcome alone = world.run({request}, kSpeculationOff);
  OracleDrafter drafter({0x1f});
  drafter.learn(9, 2, alone.answers[0].tokens);
  for (int64_t last = 0; last < 14; ++last) {
    for (const bool cancels : {false, true}) {
      const auto engine = world.engine(drafting(5, &drafter), {.step_tokens = 32});
      std::vector<TokenId> shown;
      Event end;
      value(engine->submit(request, [&](const Event& event) {
        if (event.token) shown.push_back(*event.token);
        if (event.finish != FinishReason::kNone) end = event;
        if (event.token && event.index == last) cancels ? engine->cancel(event.request) : engine->finish(event.request, last);
      }));
      run_until_idle(*engine);
      expect_all_free(*engine);
      EXPECT_EQ(static_cast<int64_t>(shown.size()), last + 1);
      EXPECT_EQ(end.finish, cancels ? FinishReason::kCancelled : FinishReason::kStop);
      EXPECT_EQ(end.usage.completion_tokens, last + 1);
      EXPECT_LE(end.usage.accepted_tokens, end.usage.completion_tokens);
    }
  }
}

// ---- masks

// Allows only tokens whose number has the parity of the place; the state is the number of accepted tokens.
class ParityMask final : public TokenMask {
 public:
  // Of `slow` times it is asked for a set, it has one ready; 0 = always.
  explicit ParityMask(int64_t* state, int64_t slow = 0) : state_(state), slow_(slow) {}
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    for (size_t i = 0; i < words.size(); ++i) words[i] = *state_ % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    return slow_ > 0 && ++asked_ % slow_ != 0 ? MaskFill::kUnfinished : MaskFill::kReady;
  }
  bool accept(TokenId token) override {
    if (token % 2 != *state_ % 2) return false;
    ++*state_;
    return true;
  }
  void rollback(int32_t num_tokens) override { *state_ -= num_tokens; }
  bool complete() const override { return false; }

 private:
  int64_t* state_;
  const int64_t slow_;
  mutable int64_t asked_ = 0;
};

TEST(EngineSpeculation, MasksFollowTheDrafts) {
  std::vector<Request> requests = hash_requests(9);
  for (Request& request : requests) request.stop_ids = {}, request.max_tokens = 20;
  ScriptedWorld world;
  std::vector<std::vector<Answer>> answers;
  OracleDrafter every(every_pattern());
  // Masks that are not ready make their rows sit steps out, with drafts and without, and change nothing else.
  for (const int64_t slow : {0, 0, 3, 5, 4}) {
    const SpeculationOptions speculation = answers.size() % 2 == 0 ? kSpeculationOff : drafting(5, &every);
    const auto engine = world.engine(speculation, {.queue_limit = 16});
    Recorder seen;
    std::vector<RequestId> ids;
    std::vector<int64_t> states(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      auto mask = i % 3 == 2 ? nullptr : std::make_unique<ParityMask>(&states[i], slow);
      ids.push_back(value(engine->submit(requests[i], seen.handler(), std::move(mask))));
      if (slow == 0) run_until_idle(*engine);
    }
    run_until_idle(*engine);
    answers.emplace_back();
    for (size_t i = 0; i < ids.size(); ++i) {
      const Answer& answer = seen[ids[i]];
      answers.back().push_back(answer);
      ASSERT_EQ(answer.tokens.size(), 20u) << answer.error;
      if (i % 3 == 2) continue;
      EXPECT_EQ(states[i], 20);
      for (size_t k = 0; k < answer.tokens.size(); ++k) EXPECT_EQ(static_cast<size_t>(answer.tokens[k]) % 2, k % 2);
      every.learn(*requests[i].sampling.seed, static_cast<int64_t>(requests[i].prompt.size()), answer.tokens);
    }
    if (speculation.mode == SpeculationMode::kOn && slow == 0) {
      EXPECT_GT(sum(engine->stats().speculation.accepted), 20);
    }
  }
  for (const auto& others : answers) {
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[0][i], others[i]) << i;
  }
}

// A constraint that begins behind a token (the end of thinking), wherever in a block that token stands: the rows behind it are
// drawn under the mask, whose first state is that of nothing.
TEST(EngineSpeculation, AConstraintBeginsInsideABlock) {
  ScriptedWorld world;
  Request request = hash_requests(1)[0];
  request.stop_ids = {}, request.max_tokens = 30;
  const std::vector<TokenId> free = world.run({request}, kSpeculationOff).answers[0].tokens;
  for (size_t border = 0; border < 12; ++border) {
    request.constraint.begins_after = free[border];
    const size_t first = static_cast<size_t>(std::find(free.begin(), free.end(), free[border]) - free.begin());
    OracleDrafter every(every_pattern()), right({0x1f});
    Answer alone;
    for (const OracleDrafter* drafter : {static_cast<OracleDrafter*>(nullptr), &every, &right}) {
      const auto engine = world.engine(drafter ? drafting(5, drafter) : kSpeculationOff);
      Recorder seen;
      int64_t state = 0;
      const RequestId id = value(engine->submit(request, seen.handler(), std::make_unique<ParityMask>(&state)));
      run_until_idle(*engine);
      if (!drafter) {
        alone = seen[id];
        for (OracleDrafter* told : {&every, &right}) {
          told->learn(*request.sampling.seed, static_cast<int64_t>(request.prompt.size()), alone.tokens);
        }
      }
      EXPECT_EQ(seen[id], alone) << "border " << border;
      EXPECT_EQ(state, static_cast<int64_t>(29 - first));
      for (size_t k = first + 1; k < 30; ++k) EXPECT_EQ(static_cast<size_t>(alone.tokens[k]) % 2, (k - first - 1) % 2) << k;
      if (drafter == &right) {
        EXPECT_GT(sum(engine->stats().speculation.accepted), 15);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
