// The shipped model gives the same bytes with every width, pattern of acceptance, device and cache state as without speculation
// (speculation.md section 8, determinism.md section 5).
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace deepinfer
