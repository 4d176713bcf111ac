// The shipped model: 32 requests together give the bytes of one at a time - tokens and log-probabilities - whatever the
// chunks, the batch, the pool or the device's timing (determinism.md section 2).
#include <gtest/gtest.h>

#include "tests/engine_harness.h"
#include "tests/shipped_model.h"

namespace deepinfer {
namespace {

// Prompts from one token to well past the window; all fit the three pages of the hostile preset.
std::vector<Request> shipped_requests(int32_t count) {
  std::mt19937 random(2026);
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t prompt = i % 4 == 0 ? 1 + static_cast<int32_t>(random() % 8) : 1 + static_cast<int32_t>(random() % 165);
    requests.push_back(mixed_request(random, kTextTokens, prompt, 1 + static_cast<int32_t>(random() % 20)));
  }
  return requests;
}

struct World {
  const char* device = "cpu";
  ReplayMode replay = ReplayMode::kDecoder;
  int32_t extra_tokens = 0;  // step_tokens = max_batch + this; 0 = the default budget
  bool together = true;
  int32_t context = 256;
  int32_t pages = 0;  // 0 = the preset's, and where that is a number, the context follows from it
  int threads = 1;    // where tests share a machine, hand-overs between threads take most of a small step
};

std::vector<Answer> answers_in(const World& world, const std::vector<Request>& requests) {
  static const V41Options shipped = shipped_options();
  const auto device = device_named(world.device, world.threads);
  const auto model = value(V41Model::create(*device, shipped));
  EngineOptions options{.replay = world.replay};
  if (world.extra_tokens > 0) options.step_tokens = options.max_batch + world.extra_tokens;
  if (world.pages > 0) options.pages = world.pages;
  if (world.pages > 0 || options.pages == 0) options.context = world.context;
  const auto engine = value(Engine::create(*device, *model, options));
  Recorder seen;
  std::vector<RequestId> ids;
  for (const Request& request : requests) {
    ids.push_back(submit_patiently(*engine, request, seen.handler()));
    if (!world.together) run_until_idle(*engine);
  }
  run_until_idle(*engine);
  EXPECT_TRUE(engine->health()) << engine->health().error().message;
  expect_all_free(*engine);
  std::vector<Answer> answers;
  for (const RequestId id : ids) answers.push_back(seen[id]);
  return answers;
}

void expect_equal(const std::vector<Answer>& answers, const std::vector<Answer>& alone, const char* world) {
  ASSERT_EQ(answers.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(answers[i], alone[i]) << world << ", request " << i;
}

TEST(EngineSameBytes, TogetherOnTheShippedModel) {
  const auto requests = shipped_requests(32);
  const auto alone = answers_in({.together = false}, requests);
  for (const Answer& answer : alone) {
    EXPECT_EQ(answer.finals, 1);
    EXPECT_NE(answer.finish, FinishReason::kError) << answer.error;
  }
  expect_equal(answers_in({.threads = 2}, requests), alone, "cpu, two threads");
  expect_equal(answers_in({.extra_tokens = 5}, requests), alone, "cpu, small chunks");
  expect_equal(answers_in({.device = "delayed"}, requests), alone, "delayed");
}

TEST(EngineSameBytes, WithoutReplay) {
  const auto requests = shipped_requests(10);
  const auto alone = answers_in({.replay = ReplayMode::kOff, .together = false}, requests);
  expect_equal(answers_in({.replay = ReplayMode::kOff, .extra_tokens = 9}, requests), alone, "off, small chunks");
  expect_equal(answers_in({.device = "delayed", .replay = ReplayMode::kOff}, requests), alone, "off, delayed");
}

// Steps far before the suffix that the upper layers keep, steps inside it, and decoding branch apart; a device that repeats
// recorded work must not repeat another branch's (the delayed one compares).
TEST(EngineSameBytes, LongPromptsTakeTheirOwnBranches) {
  Request request;
  for (int32_t i = 0; i < 1500; ++i) request.prompt.push_back(10 + i * 37 % 5000);
  request.max_tokens = 4;
  request.sampling.seed = 7;
  const World alone{.extra_tokens = 500, .together = false, .context = 2048, .pages = 48};
  World delayed = alone;
  delayed.device = "delayed";
  expect_equal(answers_in(delayed, {request}), answers_in(alone, {request}), "delayed");
}

// An answer that is cut at any token and goes on in another engine, among other company, is the answer that was not cut.
TEST(EngineSameBytes, AnswersGoOnElsewhere) {
  const auto requests = shipped_requests(24);
  const auto whole = answers_in({.together = false}, requests);
  const auto device = device_named("delayed", 1);
  const auto model = value(V41Model::create(*device, shipped_options()));
  EngineOptions options;
  if (options.pages == 0) options.context = 256;
  const auto engine = value(Engine::create(*device, *model, options));
  std::mt19937 random(7);
  std::vector<Answer> rest(requests.size());
  std::vector<size_t> cuts(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    cuts[i] = whole[i].tokens.empty() ? 0 : random() % whole[i].tokens.size();
    Request request = requests[i];
    request.answered.assign(whole[i].tokens.begin(), whole[i].tokens.begin() + static_cast<std::ptrdiff_t>(cuts[i]));
    submit_patiently(*engine, request, [&answer = rest[i], at = static_cast<int64_t>(cuts[i])](const Event& event) {
      EXPECT_EQ(event.index, at + static_cast<int64_t>(answer.tokens.size()));
      if (event.token) answer.tokens.push_back(*event.token);
      if (event.logprob) answer.logprobs.push_back(event.logprob->logprob);
      if (event.finish != FinishReason::kNone)
        answer.finish = event.finish, answer.completion_tokens = event.usage.completion_tokens;
    });
  }
  run_until_idle(*engine);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto cut = static_cast<std::ptrdiff_t>(cuts[i]);
    EXPECT_EQ(rest[i].tokens, std::vector<TokenId>(whole[i].tokens.begin() + cut, whole[i].tokens.end())) << i;
    const auto& logprobs = whole[i].logprobs;
    const auto end = logprobs.empty() ? logprobs.begin() : logprobs.begin() + cut;
    EXPECT_EQ(rest[i].logprobs, std::vector<float>(end, logprobs.end())) << i;
    EXPECT_EQ(rest[i].finish, whole[i].finish) << i;
    EXPECT_EQ(rest[i].completion_tokens, whole[i].completion_tokens) << i;
  }
}

}  // namespace
}  // namespace deepinfer
