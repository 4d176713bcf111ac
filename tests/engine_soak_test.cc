// Many requests of all kinds at once on a running engine: shared prefixes, priorities, tenants, cancels and early ends at any
// moment, a pool that is nearly always full. Afterwards nothing is held, everybody heard exactly one end, usage adds up, and
// what was answered whole equals the answer alone (oracle_rules.md R2, R3, R4, R5).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>

#include "model/oracle_drafter.h"
#include "model/scripted_model.h"
#include "tests/engine_harness.h"

namespace deepinfer {
namespace {

constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 256, "page_tokens": 16}
{"hash": {"tokens": 200, "seed": 5}})";

// What became of one request, filled by the engine's thread.
struct Fate {
  Request request;
  std::vector<TokenId> tokens;
  std::atomic<int> finals{0};
  FinishReason finish = FinishReason::kNone;
  Usage usage;
  bool disturbed = false;  // cancelled or finished early
};

class Soak {
 public:
  Soak(const char* device, EngineOptions options)
      : device_(device_named(device, 1)),
        model_(value(parse_script(kScript, "soak"))),
        engine_(value(Engine::create(*device_, model_, options))) {}

  void run(int32_t requests) {
    engine_->start();
    for (int32_t i = 0; i < requests; ++i) {
      submit();
      if (random_() % 3 == 0) disturb();
    }
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    const auto open = [&] {
      return std::any_of(fates_.begin(), fates_.end(), [](const Fate& fate) { return fate.finals.load() == 0; });
    };
    while (open() && std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    engine_->stop();
  }

  void check() {
    expect_all_free(*engine_);
    int64_t prompt = 0, completion = 0;
    for (const auto& fate : fates_) {
      ASSERT_EQ(fate.finals.load(), 1);
      ASSERT_NE(fate.finish, FinishReason::kError);
      ASSERT_EQ(fate.usage.prompt_tokens, static_cast<int64_t>(fate.request.prompt.size()));
      ASSERT_LT(fate.usage.cached_tokens, fate.usage.prompt_tokens);
      ASSERT_LE(fate.usage.replayed_tokens, fate.usage.cached_tokens);
      ASSERT_LE(fate.usage.completion_tokens, static_cast<int64_t>(fate.tokens.size()));
      prompt += fate.usage.prompt_tokens, completion += fate.usage.completion_tokens;
    }
    EXPECT_EQ(engine_->stats().prompt_tokens, prompt);
    EXPECT_EQ(engine_->stats().completion_tokens, completion);
    EXPECT_GT(engine_->stats().prefix.hit_tokens, 0);
  }

  // Undisturbed answers against an engine without cache, one at a time; disturbed ones are a beginning of it.
  void compare_with_alone() {
    const auto alone = value(Engine::create(*device_, model_, {.context = 256, .pages = 16, .prefix_cache = false}));
    for (const auto& fate : fates_) {
      std::vector<TokenId> tokens;
      value(alone->submit(fate.request, [&](const Event& event) {
        if (event.token) tokens.push_back(*event.token);
      }));
      run_until_idle(*alone);
      if (!fate.disturbed) {
        ASSERT_EQ(fate.tokens, tokens) << "finish " << static_cast<int>(fate.finish) << ", usage " << fate.usage.completion_tokens
                                       << ", prompt " << fate.request.prompt.size() << ", limit " << fate.request.max_tokens;
      }
      tokens.resize(std::min(tokens.size(), fate.tokens.size()));
      ASSERT_EQ(std::vector(fate.tokens.begin(), fate.tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size())), tokens);
    }
  }
  int64_t preempted() const { return engine_->stats().preempted; }

 private:
  void submit() {
    Request request;
    const auto trunk = static_cast<TokenId>(3 + random_() % 3);
    for (uint32_t i = 0; i < random_() % 100; ++i) request.prompt.push_back(trunk);
    for (uint32_t i = 0; i < 1 + random_() % 30; ++i) request.prompt.push_back(3 + static_cast<TokenId>(random_() % 60));
    request.max_tokens = 1 + static_cast<int32_t>(random_() % 60);
    request.sampling.seed = random_();
    // Some ends only the token tells.
    if (random_() % 2 == 0) request.stop_ids = {static_cast<TokenId>(3 + random_() % 60)};
    request.priority = static_cast<int32_t>(random_() % 3);
    request.tenant = random_() % 2 == 0 ? "a" : "b";
    Fate& fate = fates_.emplace_back();
    fate.request = request;
    const EventHandler handler = [&fate](const Event& event) {
      if (event.token) fate.tokens.push_back(*event.token);
      if (event.finish == FinishReason::kNone) return;
      fate.finish = event.finish, fate.usage = event.usage;
      fate.finals.fetch_add(1);
    };
    while (true) {
      const auto id = engine_->submit(request, handler);
      if (id) return ids_.push_back(*id);
      ASSERT_EQ(id.error().code, ErrorCode::kExhausted) << id.error().message;
      std::this_thread::yield();
    }
  }

  void disturb() {
    const size_t i = ids_.size() - 1 - random_() % std::min<size_t>(ids_.size(), 12);
    fates_[i].disturbed = true;
    if (random_() % 2 == 0)
      engine_->cancel(ids_[i]);
    else
      engine_->finish(ids_[i], static_cast<int64_t>(random_() % 8) - 1);
  }

  // Another one in each repetition of a shuffled run.
  std::mt19937 random_{99u + static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed())};
  std::unique_ptr<Device> device_;
  ScriptedModel model_;
  std::unique_ptr<Engine> engine_;
  std::deque<Fate> fates_;  // handlers keep references
  std::vector<RequestId> ids_;
};

TEST(EngineSoak, NothingIsLostAndNothingLeaks) {
  // It never learned an answer, so every draft is rejected.
  const OracleDrafter wrong({0x1f});
  const struct {
    const char* device;
    const Drafter* drafter;
  } worlds[] = {{"cpu", nullptr}, {"cpu", &wrong}, {"delayed", &wrong}, {"delayed", nullptr}};
  for (const auto& [device, drafter] : worlds) {
    const SpeculationOptions speculation{
        .mode = SpeculationMode::kOn, .schedule = SpeculationSchedule::kFixed, .drafter = drafter};
    Soak soak(device, {.max_batch = 7,
                       .step_tokens = 24,
                       .queue_limit = 9,
                       .context = 256,
                       .pages = 15,
                       .snapshot_bytes = 1,
                       .speculation = speculation});
    soak.run(600);
    soak.check();
    soak.compare_with_alone();
    EXPECT_GT(soak.preempted(), 0) << device;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// After warm-up the process holds what it held: 2 % and half a megabyte more at most, over fifty times as many requests.
TEST(EngineSoak, MemoryDoesNotGrow) {
  const auto device = device_named("cpu", 1);
  const ScriptedModel model(value(parse_script(kScript, "soak")));
  const auto engine = value(Engine::create(
      *device, model,
      {.max_batch = 7, .step_tokens = 24, .queue_limit = 9, .context = 256, .pages = 40, .snapshot_bytes = 1 << 16}));
  std::mt19937 random(5);
  const auto serve = [&](int requests) {
    for (int i = 0; i < requests; ++i) {
      Request request =
          mixed_request(random, 67, 1 + static_cast<int32_t>(random() % 150), 1 + static_cast<int32_t>(random() % 20));
      request.tenant = std::to_string(random() % 50);
      request.priority = static_cast<int32_t>(random() % 3);
      const RequestId id = submit_patiently(*engine, request, [](const Event&) {});
      if (random() % 4 == 0) engine->cancel(id);
    }
    run_until_idle(*engine);
  };
  serve(400);
  const int64_t before = resident_bytes();
  for (int round = 0; round < 10; ++round) serve(2000);
  EXPECT_LE(resident_bytes(), before + before / 50 + (1 << 19)) << "was " << before;
  expect_all_free(*engine);
}
#endif

}  // namespace
}  // namespace deepinfer
