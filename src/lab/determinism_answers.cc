#include "lab/determinism_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace deepinfer {

Result<std::vector<SeenAnswer>> answer_all(Engine& engine, const std::vector<Request>& requests, const World& world,
                                           const Watch* watch) {
  std::vector<SeenAnswer> answers(requests.size());
  int32_t open = 0;
  const auto handler = [&](size_t i) {
    return [&, i](const Event& event) {
      SeenAnswer& answer = answers[i];
      if (event.token) answer.tokens.push_back(*event.token);
      if (event.logprob) answer.logprobs.push_back(std::bit_cast<uint32_t>(event.logprob->logprob));
      if (event.finish == FinishReason::kNone) return;
      answer.finish = event.finish, answer.error = event.error;
      --open;
    };
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    if (world.aborts) {
      Request other = requests[(i + 1) % requests.size()];
      other.max_tokens = 4;
      DI_TRY(const RequestId id, engine.submit(std::move(other), [](const Event&) {}));
      for (size_t steps = 0; steps < i % 3; ++steps) engine.step();
      engine.cancel(id);
    }
    DI_TRY(const RequestId id, engine.submit(requests[i], handler(i)));
    if (watch && watch->request == i) watch->recorder->watch(id);
    ++open;
    while (open >= world.together && engine.step()) {
    }
  }
  while (engine.step()) {
  }
  return answers;
}

std::string difference(const SeenAnswer& got, const SeenAnswer& want) {
  if (!got.error.empty()) return got.error;
  const size_t count = std::min(got.tokens.size(), want.tokens.size());
  for (size_t i = 0; i < count; ++i) {
    if (got.tokens[i] != want.tokens[i]) return fmt::format("token {} is {}, alone it was {}", i, got.tokens[i], want.tokens[i]);
    if (got.logprobs[i] != want.logprobs[i]) return fmt::format("log-probability of token {} differs", i);
  }
  if (got.tokens.size() != want.tokens.size()) return fmt::format("{} tokens, alone {}", got.tokens.size(), want.tokens.size());
  return got.finish == want.finish ? "" : "it ended for another reason";
}

std::vector<Request> cut(std::vector<Request> requests, const std::vector<int64_t>& before) {
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& prompt = requests[i].prompt;
    prompt.resize(before.empty() ? prompt.size() - prompt.size() * (i % 4) / 5 : static_cast<size_t>(before[i]));
  }
  return requests;
}

}  // namespace deepinfer
