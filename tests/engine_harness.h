// tests/engine_harness.h - engines on the devices of the tests, and what their handlers saw.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/cpu_device.h"
#include "cpu/delayed_device.h"
#include "engine/engine.h"
#include "model/language_model.h"

namespace deepinfer {

template <class T>
T value(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return *std::move(result);
}

inline std::unique_ptr<Device> device_named(std::string_view name, int threads = 2) {
  return value(name == "delayed" ? make_delayed_device({.threads = threads}) : make_cpu_device({.threads = threads}));
}

// All that a client can see of one request, except when it came.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<TokenId> top_tokens;
  std::vector<float> top_logprobs;
  FinishReason finish = FinishReason::kNone;
  std::string error;
  int64_t completion_tokens = 0;
  int32_t finals = 0;

  bool operator==(const Answer&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  for (const TokenId token : answer.tokens) out << token << ' ';
  for (const float logprob : answer.logprobs) out << logprob << ' ';
  return out << "| finish " << static_cast<int>(answer.finish) << ' ' << answer.error << ", tokens " << answer.completion_tokens
             << ", finals " << answer.finals;
}

// Collects the events of many requests. Checks the order every stream must have.
class Recorder {
 public:
  EventHandler handler() {
    return [this](const Event& event) { record(event); };
  }
  const Answer& operator[](RequestId id) { return answers_[id]; }
  size_t num_finals() const { return num_finals_; }

 private:
  void record(const Event& event) {
    Answer& answer = answers_[event.request];
    EXPECT_EQ(answer.finals, 0) << "an event after the final one";
    if (event.finish != FinishReason::kNone) {
      EXPECT_FALSE(event.token.has_value());
      EXPECT_EQ(event.index, event.usage.completion_tokens);
      answer.finish = event.finish;
      answer.error = event.error;
      answer.completion_tokens = event.usage.completion_tokens;
      ++answer.finals;
      ++num_finals_;
      return;
    }
    ASSERT_TRUE(event.token.has_value());
    EXPECT_EQ(event.index, static_cast<int64_t>(answer.tokens.size()));
    answer.tokens.push_back(*event.token);
    if (event.logprob) answer.logprobs.push_back(event.logprob->logprob);
    for (const TokenLogprob& top : event.top_logprobs) {
      answer.top_tokens.push_back(top.token);
      answer.top_logprobs.push_back(top.logprob);
    }
  }

  std::map<RequestId, Answer> answers_;
  size_t num_finals_ = 0;
};

inline void run_until_idle(Engine& engine) {
  while (engine.step()) {
  }
}

// Steps until the queue has room, as a client that tries again later.
inline RequestId submit_patiently(Engine& engine, const Request& request, const EventHandler& handler) {
  for (;;) {
    auto id = engine.submit(request, handler);
    if (id) return *id;
    EXPECT_EQ(id.error().code, ErrorCode::kExhausted) << id.error().message;
    if (id.error().code != ErrorCode::kExhausted || !engine.step()) {
      ADD_FAILURE() << "no room and nothing to do: " << id.error().message;
      std::abort();
    }
  }
}

inline void expect_all_free(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.accepted, stats.ended);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.leased_pages, 0);
  EXPECT_EQ(stats.free_pages + stats.cached_pages, stats.pages);
}

// A request of `prompt_tokens` with one of the sampling settings a client can ask for.
inline Request mixed_request(std::mt19937& random, int32_t vocab, int32_t prompt_tokens, int32_t max_tokens) {
  const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
  Request request;
  for (int32_t i = 0; i < prompt_tokens; ++i) request.prompt.push_back(3 + below(static_cast<uint32_t>(vocab - 3)));
  request.max_tokens = max_tokens;
  request.stop_ids = {1};
  SamplingParams& sampling = request.sampling;
  sampling.seed = random();
  switch (below(8)) {
    case 0: sampling.temperature = 0.0f; break;
    case 1: sampling.temperature = 0.7f; break;
    case 2: sampling.top_k = 5; break;
    case 3: sampling.top_p = 0.8f; break;
    case 4: sampling.min_p = 0.1f; break;
    case 5: sampling.repetition_penalty = 1.3f; break;
    case 6:
      sampling.frequency_penalty = 0.5f;
      sampling.presence_penalty = 0.25f;
      break;
    default: sampling.logit_bias = {{5, 2.5f}, {7, -3.0f}}; break;
  }
  sampling.num_logprobs = below(4) - 1;
  return request;
}

}  // namespace deepinfer
