// The shipped model gives the same bytes with every width, pattern of acceptance, device and cache state as without speculation
// (speculation.md section 8, determinism.md section 5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "tests/shipped_model.h"
#include "tests/speculation_harness.h"

namespace deepinfer {
namespace {

class ShippedWorld {
 public:
  explicit ShippedWorld(const char* device = "cpu")
      : device_(device_named(device, 1)), model_(value(V41Model::create(*device_, shipped()))) {}

  Outcome run(const std::vector<Request>& requests, EngineOptions options, bool together = true) {
    if (options.pages == 0) options.context = 256;
    const auto engine = value(Engine::create(*device_, *model_, options));
    return run_requests(*engine, requests, together);
  }
  std::unique_ptr<Engine> engine(const EngineOptions& options) { return value(Engine::create(*device_, *model_, options)); }

 private:
  static const V41Options& shipped() {
    static const V41Options options = shipped_options();
    return options;
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<V41Model> model_;
};

std::vector<Request> shipped_requests(int32_t count, int32_t longest_answer) {
  std::mt19937 random(77);
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t prompt = i % 4 == 0 ? 1 + static_cast<int32_t>(random() % 8) : 1 + static_cast<int32_t>(random() % 150);
    requests.push_back(
        mixed_request(random, kTextTokens, prompt, 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(longest_answer))));
  }
  return requests;
}

TEST(SpeculationSameBytes, TheShippedModelsOwnDrafts) {
  const auto requests = shipped_requests(8, 30);
  ShippedWorld cpu, delayed("delayed");
  for (const ReplayMode replay : {ReplayMode::kDecoder, ReplayMode::kOff}) {
    const Outcome alone = cpu.run(requests, {.replay = replay, .speculation = kSpeculationOff}, false);
    for (int32_t width = replay == ReplayMode::kOff ? 5 : 1; width <= 5; ++width) {
      const Outcome run = cpu.run(requests, {.replay = replay, .speculation = drafting(width)});
      expect_equal(run, alone, "width " + std::to_string(width));
      EXPECT_GT(sum(run.stats.speculation.verified), 0);
      EXPECT_LE(sum(run.stats.speculation.accepted), sum(run.stats.speculation.verified));
    }
    expect_equal(delayed.run(requests, {.replay = replay, .speculation = drafting(5)}), alone, "delayed");
  }
}

// Rings, tails, Engram ids and pages after any mix of accepted and rejected rows, at odd and even places, over page borders and
// past the window: the answer must go on as if only accepted rows had run.
TEST(SpeculationSameBytes, EveryPatternOfAcceptanceOnTheShippedModel) {
  auto requests = shipped_requests(6, 60);
  for (Request& request : requests) request.max_tokens = 40, request.stop_ids.clear();
  requests[0].prompt.resize(1), requests[1].prompt.resize(64, 9), requests[2].prompt.resize(131, 11);
  ShippedWorld cpu, delayed("delayed");
  const Outcome alone = cpu.run(requests, {.speculation = kSpeculationOff}, false);
  for (const bool honest : {true, false}) {
    OracleDrafter drafter(every_pattern(), 5, honest);
    learn(drafter, requests, alone);
    expect_equal(cpu.run(requests, {.speculation = drafting(5, &drafter)}), alone, "every pattern");
    if (honest) expect_equal(delayed.run(requests, {.speculation = drafting(5, &drafter)}), alone, "every pattern, delayed");
  }
  for (const uint32_t pattern : {0x00u, 0x1fu, 0x01u, 0x07u}) {
    OracleDrafter drafter({pattern});
    learn(drafter, requests, alone);
    expect_equal(cpu.run(requests, {.speculation = drafting(5, &drafter)}), alone, "pattern " + std::to_string(pattern));
  }
}

// What a speculating answer leaves in the cache serves the next turn like what a plain one leaves.
TEST(SpeculationSameBytes, AConversationOverTheCache) {
  for (const ReplayMode replay : {ReplayMode::kOff, ReplayMode::kDecoder}) {
    EngineOptions options{.context = 1024, .pages = 64, .replay = replay, .speculation = kSpeculationOff};
    ShippedWorld world;
    std::mt19937 random(7);
    std::vector<Request> turns(1);
    std::vector<TokenId> history;
    for (int i = 0; i < 190; ++i) history.push_back(3 + static_cast<TokenId>(random() % (kTextTokens - 3)));
    options.prefix_cache = false;
    const auto cold = world.engine(options);
    std::vector<Request> requests;
    std::vector<Answer> want;
    for (int turn = 0; turn < 3; ++turn) {
      Request request;
      request.prompt = history, request.max_tokens = 70;
      request.sampling.seed = static_cast<uint64_t>(turn), request.sampling.num_logprobs = 1;
      want.push_back(run_requests(*cold, {request}).answers[0]);
      requests.push_back(request);
      history.insert(history.end(), want.back().tokens.begin(), want.back().tokens.end());
      for (int i = 0; i < 7; ++i) history.push_back(3 + static_cast<TokenId>(random() % (kTextTokens - 3)));
    }
    for (const uint32_t pattern : {0x00u, 0x1fu}) {
      OracleDrafter drafter({pattern, 0x0fu, pattern});
      for (size_t i = 0; i < requests.size(); ++i)
        drafter.learn(i, static_cast<int64_t>(requests[i].prompt.size()), want[i].tokens);
      options.prefix_cache = true;
      options.speculation = drafting(5, &drafter);
      const auto warm = world.engine(options);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(run_requests(*warm, {requests[i]}).answers[0], want[i])
            << replay_mode_name(replay) << ", pattern " << pattern << ", turn " << i;
      }
      EXPECT_GT(warm->stats().prefix.hit_tokens, 300);
    }
  }
}

// How often each token stands at place `at` of the answers; -1 = ended before.
std::map<TokenId, double> tokens_at(const Outcome& run, size_t at) {
  std::map<TokenId, double> counts;
  for (const Answer& answer : run.answers) ++counts[at < answer.tokens.size() ? answer.tokens[at] : -1];
  return counts;
}

// Of two samples of the same size; bins of few are left out. Gives chi-square over the value that is passed once in a thousand.
double difference(const std::map<TokenId, double>& a, const std::map<TokenId, double>& b) {
  std::set<TokenId> tokens;
  for (const auto* counts : {&a, &b}) {
    for (const auto& [token, count] : *counts) tokens.insert(token);
  }
  double sum = 0, bins = 0;
  for (const TokenId token : tokens) {
    const double x = a.contains(token) ? a.at(token) : 0, y = b.contains(token) ? b.at(token) : 0;
    if (x + y < 10) continue;
    sum += (x - y) * (x - y) / (x + y), ++bins;
  }
  const double freedom = std::max(1.0, bins - 1), spread = 2 / (9 * freedom);
  const double limit = freedom * std::pow(1 - spread + 3.09 * std::sqrt(spread), 3);  // Wilson and Hilferty
  return sum / limit;
}

// Rejection gives other answers with the same distribution: also where drafts end the answer, where few drafts are verified, and
// with penalties and truncation.
TEST(SpeculationSameBytes, RejectionKeepsTheDistribution) {
  const Tokenizer tokenizer = value(Tokenizer::parse(value(read_file(join_path(kModelDir, "tokenizer.json")))));
  std::vector<Request> requests(600);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = tokenizer.encode("Once upon a time, there was a little girl");
    requests[i].max_tokens = 4;
    requests[i].sampling.seed = i;
    requests[i].sampling.temperature = 1.5f;
    requests[i].sampling.top_k = 20;
    requests[i].sampling.frequency_penalty = 0.3f;
  }
  ShippedWorld world;
  const EngineOptions plain{.queue_limit = 600, .speculation = kSpeculationOff};
  // Half of what comes second ends the answer.
  std::vector<TokenId> stops;
  bool ends = true;
  for (const auto& [token, count] : tokens_at(world.run(requests, plain), 1)) {
    if (std::exchange(ends, !ends)) stops.push_back(token);
  }
  for (Request& request : requests) request.stop_ids = stops;
  const Outcome alone = world.run(requests, plain);
  for (Request& request : requests) *request.sampling.seed += requests.size();
  for (const SpeculationSchedule schedule : {SpeculationSchedule::kFixed, SpeculationSchedule::kSync}) {
    EngineOptions rejecting{.queue_limit = 600, .speculation = drafting(3, nullptr, schedule)};
    rejecting.speculation.verify = DraftVerification::kRejection;
    const Outcome run = world.run(requests, rejecting);
    EXPECT_GT(sum(run.stats.speculation.accepted), 0);
    for (size_t at = 0; at < 4; ++at) EXPECT_LT(difference(tokens_at(run, at), tokens_at(alone, at)), 1) << "token " << at;
  }
}

TEST(SpeculationSameBytes, RejectionNeedsTheDraftersLogits) {
  OracleDrafter oracle({0x1f});
  EngineOptions options{.speculation = drafting(5, &oracle)};
  options.speculation.verify = DraftVerification::kRejection;
  const auto device = device_named("cpu", 1);
  const auto model = value(V41Model::create(*device, shipped_options()));
  const auto engine = Engine::create(*device, *model, options);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("keeps their logits"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace deepinfer
