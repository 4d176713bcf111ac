// The engine's promises on the cpu device and on the delayed one, with the scripted model.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/event_queue.h"
#include "model/scripted_model.h"
#include "tests/engine_harness.h"

namespace deepinfer {
namespace {

constexpr int32_t kVocab = 67;
constexpr const char* kHashScript = R"({"scripted": 1, "vocab": 67, "context": 48, "page_tokens": 16, "window": 16}
{"hash": {"tokens": 15, "seed": 5}})";

class EngineOn : public testing::TestWithParam<const char*> {
 protected:
  void open(std::string_view script, EngineOptions options = {}) {
    engine_.reset();
    model_ = std::make_unique<ScriptedModel>(value(parse_script(script, "test")));
    if (!device_) device_ = device_named(GetParam());
    engine_ = value(Engine::create(*device_, *model_, options));
  }

  Answer run(const Request& request) {
    const RequestId id = submit_patiently(*engine_, request, seen_.handler());
    run_until_idle(*engine_);
    return forget_id(id);
  }
  Answer forget_id(RequestId id) { return seen_[id]; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<ScriptedModel> model_;
  std::unique_ptr<Engine> engine_;
  Recorder seen_;
};

INSTANTIATE_TEST_SUITE_P(Devices, EngineOn, testing::Values("cpu", "delayed"),
                         [](const auto& info) { return std::string(info.param); });

Request simple_request(std::vector<TokenId> prompt, int32_t max_tokens = 0) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.stop_ids = {1};
  return request;
}

std::vector<Request> mixed_requests(uint32_t seed, int32_t count) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t prompt = 1 + static_cast<int32_t>(random() % 30), answer = static_cast<int32_t>(random() % 18);
    requests.push_back(mixed_request(random, kVocab, prompt, answer));
  }
  return requests;
}

TEST_P(EngineOn, AnswersComeFromTheScript) {
  open(R"({"scripted": 1, "vocab": 300, "context": 192}
{"match": [40, 41], "ids": [7, 8, 9]}
{"bytes": "hello"})");
  Answer answer = run(simple_request({39, 40, 41, 42}));
  EXPECT_EQ(answer.tokens, (std::vector<TokenId>{7, 8, 9}));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.completion_tokens, 3);
  answer = run(simple_request({5}, 4));
  EXPECT_EQ(answer.tokens, (std::vector<TokenId>{'h', 'e', 'l', 'l'}));
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  expect_all_free(*engine_);
}

TEST_P(EngineOn, TogetherEqualsOneAtATime) {
  const auto requests = mixed_requests(11, 32);
  open(kHashScript);
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(run(request));
  for (const int32_t step_tokens : {0, engine_->options().max_batch, engine_->options().max_batch + 4}) {
    EngineOptions options;
    if (step_tokens > 0) options.step_tokens = step_tokens;
    open(kHashScript, options);
    seen_ = {};
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(submit_patiently(*engine_, request, seen_.handler()));
    run_until_idle(*engine_);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(forget_id(ids[i]), alone[i]) << "request " << i << ", step_tokens " << step_tokens;
      EXPECT_EQ(alone[i].finals, 1);
      EXPECT_EQ(alone[i].completion_tokens, static_cast<int64_t>(alone[i].tokens.size()));
      const int64_t limit = requests[i].max_tokens == 0 ? 15 : requests[i].max_tokens;
      EXPECT_EQ(alone[i].completion_tokens, std::min<int64_t>(15, limit));
    }
    expect_all_free(*engine_);
  }
}

TEST_P(EngineOn, AnotherSeedGivesAnotherAnswerAndNoSeedIsDrawn) {
  open(kHashScript);
  Request request = simple_request({3, 4, 5}, 12);
  request.sampling.seed = 1;
  const Answer first = run(request);
  EXPECT_EQ(run(request), first);
  request.sampling.seed = 2;
  EXPECT_NE(run(request).tokens, first.tokens);
  request.sampling.seed.reset();
  const Answer drawn = run(request);
  EXPECT_NE(run(request).tokens, drawn.tokens);
}

TEST_P(EngineOn, RequestsOfOneBatchShareSteps) {
  open(kHashScript);
  for (int32_t i = 0; i < 3; ++i) submit_patiently(*engine_, simple_request({3 + i}, 10), seen_.handler());
  run_until_idle(*engine_);
  EXPECT_LE(engine_->stats().steps, 12);
  EXPECT_EQ(engine_->stats().completion_tokens, 30);
}

TEST_P(EngineOn, BiasPenaltiesAndLogprobsReachTheDraw) {
  open(kHashScript);
  Request request = simple_request({3, 4, 5}, 8);
  request.sampling.logit_bias = {{9, 1000.0f}};
  request.sampling.num_logprobs = 2;
  Answer answer = run(request);
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(8, 9));
  ASSERT_EQ(answer.logprobs.size(), 8u);
  EXPECT_EQ(answer.top_tokens.size(), 16u);
  EXPECT_EQ(answer.top_tokens[0], 9);
  EXPECT_NEAR(answer.logprobs[0], 0.0f, 1e-5f);
  request.sampling.logit_bias = {{9, 1000.0f}, {10, 900.0f}};  // the script's own logits are within 4
  request.sampling.presence_penalty = 500.0f;
  request.sampling.temperature = 0.0f;
  EXPECT_EQ(run(request).tokens, (std::vector<TokenId>{9, 10, 9, 9, 9, 9, 9, 9}));
  request.sampling.presence_penalty = 0.0f;
  request.sampling.frequency_penalty = 150.0f;
  EXPECT_EQ(run(request).tokens, (std::vector<TokenId>{9, 10, 9, 10, 9, 10, 9, 10}));
}

TEST_P(EngineOn, FinishCutsAtTheIndex) {
  open(kHashScript);
  Request request = simple_request({3, 4, 5}, 12);
  request.sampling.seed = 3;
  const Answer whole = run(request);
  ASSERT_EQ(whole.tokens.size(), 12u);
  // From the handler, as the parser does: nothing behind the index is generated.
  for (const int64_t last : {-1, 0, 4, 11}) {
    Answer cut;
    const auto id = value(engine_->submit(request, [&](const Event& event) {
      if (event.token) cut.tokens.push_back(*event.token);
      if (event.token && event.index == std::max<int64_t>(last, 0)) engine_->finish(event.request, last);
      if (event.finish != FinishReason::kNone) {
        cut.finish = event.finish;
        cut.completion_tokens = event.usage.completion_tokens;
      }
    }));
    EXPECT_GT(id, 0u);
    run_until_idle(*engine_);
    EXPECT_EQ(cut.completion_tokens, last + 1);
    EXPECT_EQ(cut.finish, last == 11 ? FinishReason::kLength : FinishReason::kStop);
    EXPECT_EQ(cut.tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + std::max<int64_t>(last + 1, 1)));
  }
  // Before the first step, and for an index that is still to come.
  for (const int64_t last : {-1, 0, 6}) {
    const RequestId id = submit_patiently(*engine_, request, seen_.handler());
    engine_->finish(id, last);
    run_until_idle(*engine_);
    EXPECT_EQ(seen_[id].completion_tokens, last + 1);
    EXPECT_EQ(seen_[id].finish, FinishReason::kStop);
    EXPECT_EQ(seen_[id].tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + last + 1));
  }
  engine_->finish(999, 0);
  engine_->cancel(999);
  run_until_idle(*engine_);
  expect_all_free(*engine_);
}

TEST_P(EngineOn, QueueAndPagesRunOutAndComeBack) {
  open(kHashScript, {.max_batch = 2, .queue_limit = 1, .pages = 4});
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 3; ++i) {
    ids.push_back(value(engine_->submit(simple_request(std::vector<TokenId>(30, 5 + i), 15), seen_.handler())));
  }
  auto refused = engine_->submit(simple_request({3}), seen_.handler());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message, "the queue is full: 2 requests may run and 1 wait, try again later");
  engine_->step();
  // The second needs two pages for its prompt, and one is left for the first's answer.
  EXPECT_EQ(engine_->stats().running, 1);
  EXPECT_EQ(engine_->stats().leased_pages, 2);
  run_until_idle(*engine_);
  for (const RequestId id : ids) EXPECT_EQ(seen_[id].completion_tokens, 15);
  EXPECT_TRUE(engine_->submit(simple_request({3}), seen_.handler()));
  run_until_idle(*engine_);
  expect_all_free(*engine_);
}

TEST_P(EngineOn, TenantsTakeTurns) {
  open(kHashScript, {.max_batch = 1, .queue_limit = 8});
  std::vector<std::string> order;
  for (const char* tenant : {"many", "many", "many", "many", "one"}) {
    Request request = simple_request({3, 4, 5, 6}, 2);
    request.tenant = tenant;
    ASSERT_TRUE(engine_->submit(request, [&order, tenant](const Event& event) {
      if (event.finish != FinishReason::kNone) order.push_back(tenant);
    }));
  }
  run_until_idle(*engine_);
  EXPECT_EQ(order, (std::vector<std::string>{"many", "one", "many", "many", "many"}));
}

TEST_P(EngineOn, HigherPriorityStartsFirst) {
  open(kHashScript, {.max_batch = 1, .queue_limit = 4});
  std::vector<int32_t> order;
  for (const int32_t priority : {0, 1, 5, 1}) {
    Request request = simple_request({3}, 2);
    request.priority = priority;
    ASSERT_TRUE(engine_->submit(request, [&order, priority](const Event& event) {
      if (event.finish != FinishReason::kNone) order.push_back(priority);
    }));
  }
  run_until_idle(*engine_);
  EXPECT_EQ(order, (std::vector<int32_t>{5, 1, 1, 0}));
}

TEST_P(EngineOn, RefusalsSayWhatAndWhatToDo) {
  open(kHashScript, {.max_batch = 2, .step_tokens = 8, .context = 40, .pages = 2});
  const auto why = [&](const Request& request) {
    auto id = engine_->submit(request, seen_.handler());
    EXPECT_FALSE(id);
    return id ? std::string() : id.error().message;
  };
  EXPECT_EQ(
      why(simple_request(std::vector<TokenId>(40, 3))),
      "the prompt has 40 tokens, the context is 40 and one must be left for the answer: shorten the prompt or raise the context");
  EXPECT_EQ(why(simple_request(std::vector<TokenId>(30, 3), 8)),
            "a prompt of 30 tokens and an answer of 8 need 3 pages of 16 tokens, the pool has 2: "
            "lower max_tokens or give the engine more pages");
  Request hot = simple_request({3});
  hot.sampling.temperature = -0.5f;
  EXPECT_EQ(why(hot), "temperature must be 0 or more, got -0.5");
  EXPECT_EQ(engine_->stats().accepted, 0);
  // The longest answer that fits is taken; without a limit of its own a request gets what the pool holds.
  EXPECT_EQ(run(simple_request(std::vector<TokenId>(28, 3))).completion_tokens, 4);
}

TEST_P(EngineOn, OptionsThatDoNotFitAreRefused) {
  open(kHashScript);
  const auto why = [&](EngineOptions options) {
    auto engine = Engine::create(*device_, *model_, options);
    EXPECT_FALSE(engine);
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_EQ(why({.max_batch = 0}), "max_batch must be at least 1, got 0");
  EXPECT_EQ(why({.max_batch = 3, .step_tokens = 2}), "step_tokens must be at least 3, got 2");
  EXPECT_EQ(why({.context = 49}), "context 49 is more than the 48 tokens of model scripted:test");
  EXPECT_EQ(why({.keep_tokens = 15}), "keep_tokens must be at least the model's window of 16, got 15");
}

TEST_P(EngineOn, NanEndsOneRequestAndTheOthersGoOn) {
  open(R"({"scripted": 1, "vocab": 67, "context": 48, "page_tokens": 16}
{"match": [50], "ids": [4, 5, 6], "faults": [{"token": 2, "kind": "nan"}]}
{"ids": [7, 8, 9, 10]})");
  const RequestId bad = submit_patiently(*engine_, simple_request({50}, 9), seen_.handler());
  const RequestId good = submit_patiently(*engine_, simple_request({51}, 9), seen_.handler());
  run_until_idle(*engine_);
  EXPECT_EQ(seen_[bad].tokens, (std::vector<TokenId>{4, 5}));
  EXPECT_EQ(seen_[bad].finish, FinishReason::kError);
  EXPECT_EQ(seen_[bad].error, "the model gave no finite logit for token 2 of the answer");
  EXPECT_EQ(seen_[good].tokens, (std::vector<TokenId>{7, 8, 9, 10}));
  EXPECT_EQ(seen_[good].finish, FinishReason::kStop);
  EXPECT_TRUE(engine_->health());
  expect_all_free(*engine_);
}

TEST_P(EngineOn, AFailedStepEndsWhatRanAndTheNextRequestWorks) {
  open(
      R"({"scripted": 1, "vocab": 67, "context": 48, "page_tokens": 16, "faults": [{"step": 3, "kind": "error"}, {"step": 9, "kind": "nan"}, {"step": 10, "kind": "nan"}]}
{"ids": [7, 8, 9, 10]})");
  const RequestId a = submit_patiently(*engine_, simple_request({50}, 9), seen_.handler());
  const RequestId b = submit_patiently(*engine_, simple_request({51}, 9), seen_.handler());
  for (int32_t i = 0; i < 3; ++i) engine_->step();
  for (const RequestId id : {a, b}) {
    EXPECT_EQ(seen_[id].tokens, (std::vector<TokenId>{7, 8}));
    EXPECT_EQ(seen_[id].finish, FinishReason::kError);
    EXPECT_EQ(seen_[id].error, "the step failed: scripted fault: error at step 3");
  }
  EXPECT_EQ(engine_->health().error().message, "scripted fault: error at step 3");
  EXPECT_EQ(run(simple_request({52}, 9)).finish, FinishReason::kStop);  // steps 4 to 8, and 9 for nothing with overlap
  EXPECT_TRUE(engine_->health());
  EXPECT_EQ(run(simple_request({52}, 9)).finish, FinishReason::kError);  // step 9 or 10
  expect_all_free(*engine_);
}

// Any mix of submits, cancels, finishes and steps: one final event each, no token that a lone run would not give, and
// nothing left behind.
TEST_P(EngineOn, RandomLivesEndOnceAndLeakNothing) {
  const auto requests = mixed_requests(23, 24);
  open(kHashScript);
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(run(request));
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    open(kHashScript);
    seen_ = {};
    std::vector<RequestId> ids;
    std::map<RequestId, size_t> source;
    std::map<RequestId, int64_t> cut;
    for (int32_t move = 0; move < 120; ++move) {
      const RequestId some = ids.empty() ? 0 : ids[random() % ids.size()];
      switch (random() % 6) {
        case 0:
        case 1: {
          const size_t which = random() % requests.size();
          auto id = engine_->submit(requests[which], seen_.handler());
          if (!id) break;
          ids.push_back(*id);
          source[*id] = which;
          break;
        }
        case 2: engine_->cancel(some); break;
        case 3: {
          const int64_t last = static_cast<int64_t>(random() % 16) - 1;
          engine_->finish(some, last);
          if (!cut.contains(some) || cut[some] > last) cut[some] = last;
          break;
        }
        default: engine_->step(); break;
      }
    }
    if (seed % 4 == 0) {
      engine_->stop();
      EXPECT_FALSE(engine_->submit(requests[0], seen_.handler()));
    } else {
      run_until_idle(*engine_);
    }
    EXPECT_EQ(seen_.num_finals(), ids.size());
    for (const RequestId id : ids) {
      const Answer& answer = seen_[id];
      const Answer& reference = alone[source[id]];
      EXPECT_EQ(answer.finals, 1);
      ASSERT_LE(answer.tokens.size(), reference.tokens.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), reference.tokens.begin())) << "seed " << seed;
      EXPECT_LE(answer.completion_tokens, static_cast<int64_t>(answer.tokens.size()));
      const bool whole = answer.finish == FinishReason::kLength || (answer.finish == FinishReason::kStop && !cut.contains(id));
      EXPECT_TRUE(!whole || answer == reference) << "seed " << seed;
    }
    expect_all_free(*engine_);
  }
}

TEST_P(EngineOn, ItsOwnThreadServesManyClients) {
  open(kHashScript);
  const auto requests = mixed_requests(31, 12);
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(run(request));
  open(kHashScript);
  engine_->start();
  std::vector<std::thread> clients;
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] {
      EventQueue queue;
      auto id = engine_->submit(requests[i], queue.handler());
      while (!id) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        id = engine_->submit(requests[i], queue.handler());
      }
      if (i % 5 == 4) engine_->cancel(*id);
      Event event = queue.pop();
      for (; event.finish == FinishReason::kNone; event = queue.pop()) answers[i].tokens.push_back(*event.token);
      answers[i].finish = event.finish;
      EXPECT_FALSE(queue.pop_for(std::chrono::microseconds(0)));
    });
  }
  for (auto& client : clients) client.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (answers[i].finish == FinishReason::kCancelled) continue;
    EXPECT_EQ(answers[i].tokens, alone[i].tokens);
    EXPECT_EQ(answers[i].finish, alone[i].finish);
  }
  engine_->stop();
  expect_all_free(*engine_);
}

TEST_P(EngineOn, StopEndsARunningAnswer) {
  open(R"({"scripted": 1, "vocab": 67, "context": 48, "page_tokens": 16, "delay_ms": 5}
{"ids": [3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5]})");
  engine_->start();
  EventQueue queue;
  value(engine_->submit(simple_request({9}), queue.handler()));
  EXPECT_TRUE(queue.pop().token);
  engine_->stop();
  Event event = queue.pop();
  while (event.finish == FinishReason::kNone) event = queue.pop();
  EXPECT_EQ(event.finish, FinishReason::kCancelled);
  EXPECT_EQ(event.error, "the engine was stopped");
  expect_all_free(*engine_);
}

}  // namespace
}  // namespace deepinfer
