// Steps in flight (scheduler/step_ahead.h): on a device that runs beside the host the next step is launched before the results of
// the last one are read, and nobody can tell from an answer. On `delayed` a buffer used too early or given back too early shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "base/clock.h"
#include "model/oracle_drafter.h"
#include "model/scripted_model.h"
#include "tests/engine_harness.h"

namespace deepinfer {
namespace {

constexpr int32_t kVocab = 67;
constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 256, "page_tokens": 16}
{"hash": {"tokens": 200, "seed": 5}})";

// Looks at every plan, and can let the device fail or stand still.
class WatchedModel final : public LanguageModel {
 public:
  explicit WatchedModel(Device& device) : device_(device), model_(value(parse_script(kScript, "overlap"))) {}
  std::string name() const override { return model_.name(); }
  std::string fingerprint() const override { return model_.fingerprint(); }
  const ModelShape& shape() const override { return model_.shape(); }
  const KvLayout& layout() const override { return model_.layout(); }
  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override {
    return model_.make_workspace(device, limits);
  }
  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override {
    rows += plan.num_rows();
    behind += std::any_of(plan.tokens.begin(), plan.tokens.end(), [](TokenId token) { return token < 0; });
    if (before) before();
    if (++steps == fails_at) {
      Buffer freed = value(device_.allocate(64));
      void* const address = freed.as<void>();
      freed = Buffer();
      device_.fill_zero(address, 64);
    }
    return model_.forward(plan, state, workspace);
  }

  mutable int64_t steps = 0, rows = 0;
  mutable int64_t behind = 0;  // steps with tokens that were still being drawn
  int64_t fails_at = 0;
  std::function<void()> before;

 private:
  Device& device_;
  ScriptedModel model_;
};

class EngineOverlap : public ::testing::Test {
 protected:
  void open(const char* device, EngineOptions options = {}) {
    engine_.reset();
    model_.reset();
    device_ = device_named(device, 1);
    model_ = std::make_unique<WatchedModel>(*device_);
    options.context = 256;
    if (!options.speculation.drafter) options.speculation.mode = SpeculationMode::kOff;
    engine_ = value(Engine::create(*device_, *model_, options));
    model_->steps = model_->rows = model_->behind = 0;
    seen_ = {};
  }
  static Request request(int32_t prompt, int32_t max_tokens) {
    Request out;
    for (int32_t i = 0; i < prompt; ++i) out.prompt.push_back(3 + i % 60);
    out.max_tokens = max_tokens;
    out.sampling.seed = 7;
    return out;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<WatchedModel> model_;
  std::unique_ptr<Engine> engine_;
  Recorder seen_;
};

TEST_F(EngineOverlap, TheNextStepIsLaunchedBeforeTheLastIsRead) {
  struct World {
    const char* device;
    OverlapMode mode;
    int64_t ahead;
  };
  Answer alone;
  for (const World& world : {World{"cpu", OverlapMode::kAuto, 0}, World{"cpu", OverlapMode::kOn, 1},
                             World{"delayed", OverlapMode::kAuto, 1}, World{"delayed", OverlapMode::kOff, 0}}) {
    open(world.device, {.overlap = world.mode});
    int64_t tokens = 0, most = 0;
    // The k-th forward pass needs k - 1 tokens, known or not.
    model_->before = [&] { most = std::max(most, model_->steps - tokens); };
    const EventHandler record = seen_.handler();
    const RequestId id = value(engine_->submit(request(5, 20), [&](const Event& event) {
      record(event);
      tokens += event.token.has_value();
    }));
    run_until_idle(*engine_);
    EXPECT_EQ(most, world.ahead) << world.device;
    EXPECT_EQ(model_->behind, world.ahead * 19);
    EXPECT_EQ(model_->rows, 24) << "the limit of an answer is known: no row is computed for nothing";
    EXPECT_EQ(engine_->stats().steps, 20);
    if (alone.tokens.empty()) alone = seen_[id];
    EXPECT_EQ(seen_[id], alone);
    expect_all_free(*engine_);
  }
}

// An end that only the token tells costs one row, which nobody hears of.
TEST_F(EngineOverlap, ARowBehindTheEndIsDropped) {
  open("delayed", {.overlap = OverlapMode::kOff});
  const RequestId whole = value(engine_->submit(request(5, 40), seen_.handler()));
  run_until_idle(*engine_);
  const TokenId stop = seen_[whole].tokens[9];
  for (const OverlapMode mode : {OverlapMode::kOff, OverlapMode::kAuto}) {
    open("delayed", {.overlap = mode});
    Request stopped = request(5, 40);
    stopped.stop_ids = {stop};
    Event last;
    std::vector<TokenId> tokens;
    value(engine_->submit(stopped, [&](const Event& event) {
      last = event;
      if (event.token) tokens.push_back(*event.token);
    }));
    run_until_idle(*engine_);
    EXPECT_LE(tokens.size(), 9u);
    const auto count = static_cast<int64_t>(tokens.size());
    EXPECT_EQ(last.finish, FinishReason::kStop);
    EXPECT_EQ(last.usage.completion_tokens, count);
    EXPECT_EQ(last.report->trace.prefill_steps, 1);
    EXPECT_EQ(last.report->trace.decode_steps, count);
    EXPECT_EQ(model_->rows, 5 + count + (mode == OverlapMode::kAuto));
    expect_all_free(*engine_);
  }
}

// Allows every token but multiples of four behind an odd number of tokens; needs each token before the next draw.
class AlternatingMask final : public TokenMask {
 public:
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    // Now and then it is not ready, and what stands there is no mask.
    const bool ready = ++asked_ % 3 != 0;
    for (uint32_t& word : words) word = !ready ? 0x11111111u : count_ % 2 == 0 ? ~0u : 0xEEEEEEEEu;
    return ready ? MaskFill::kReady : MaskFill::kUnfinished;
  }
  bool accept(TokenId token) override { return (count_ % 2 == 0 || token % 4 != 0) && ++count_ > 0; }
  void rollback(int32_t num_tokens) override { count_ -= num_tokens; }
  bool complete() const override { return false; }

 private:
  int64_t count_ = 0;
  mutable int64_t asked_ = 0;
};

// Leaves no choice at five places of eight, and tells the engine so or lets it draw.
class ForcingMask final : public TokenMask {
 public:
  explicit ForcingMask(bool tells) : tells_(tells) {}
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    if (++asked_ % 4 == 0) return MaskFill::kUnfinished;
    std::fill(words.begin(), words.end(), only() < 0 ? ~0u : 0);
    if (only() >= 0) words[static_cast<size_t>(only()) / 32] |= 1u << (only() % 32);
    return MaskFill::kReady;
  }
  TokenId forced() const override { return tells_ ? only() : -1; }
  bool accept(TokenId token) override { return (only() < 0 || token == only()) && ++count_ > 0; }
  void rollback(int32_t num_tokens) override { count_ -= num_tokens; }
  bool complete() const override { return false; }

 private:
  TokenId only() const { return count_ % 8 < 3 ? -1 : static_cast<TokenId>(3 + count_ * 7 % 29); }

  const bool tells_;
  int64_t count_ = 0;
  mutable int64_t asked_ = 0;
};

// Requests of all kinds, ended at any moment in any way, in a pool that is too small: what is heard is what is heard alone.
class Lives {
 public:
  explicit Lives(uint32_t seed) : random_(seed) {
    for (int32_t i = 0; i < 16; ++i) {
      Request request = mixed_request(random_, kVocab, 1 + below(60), 1 + below(50));
      // Shared beginnings and many ends that only the token tells.
      if (i % 2 == 0) std::fill_n(request.prompt.begin(), std::min<size_t>(40, request.prompt.size() - 1), 9);
      if (i % 3 > 0) request.stop_ids = {static_cast<TokenId>(3 + below(20)), static_cast<TokenId>(30 + below(20))};
      request.priority = below(3);
      requests_.push_back(std::move(request));
    }
  }

  void answer_alone(Engine& engine) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const RequestId id = value(engine.submit(requests_[i], alone_.handler(), mask(i, false)));
      run_until_idle(engine);
      alone_ids_.push_back(id);
    }
  }

  void live(Engine& engine, int moves) {
    Recorder seen;
    std::vector<std::pair<RequestId, size_t>> lives;
    std::map<RequestId, bool> cut;
    for (int move = 0; move < moves; ++move) {
      const RequestId some = lives.empty() ? 0 : lives[lives.size() - 1 - static_cast<size_t>(below(8)) % lives.size()].first;
      switch (below(9)) {
        case 0:
        case 1: {
          const auto which = static_cast<size_t>(below(16));
          const auto id = engine.submit(requests_[which], seen.handler(), mask(which, true));
          if (id) lives.emplace_back(*id, which);
          break;
        }
        case 2: engine.cancel(some); break;
        case 3:
          engine.finish(some, below(30) - 1);
          cut[some] = true;
          break;
        default: engine.step(); break;
      }
    }
    run_until_idle(engine);
    for (const auto& [id, which] : lives) check(seen[id], alone_[alone_ids_[which]], cut[id]);
    expect_all_free(engine);
  }

 private:
  int32_t below(uint32_t limit) { return static_cast<int32_t>(random_() % limit); }
  static std::unique_ptr<TokenMask> mask(size_t which, bool tells) {
    if (which % 5 == 3) return std::make_unique<ForcingMask>(tells);
    return which % 5 == 4 ? std::make_unique<AlternatingMask>() : nullptr;
  }
  static void check(const Answer& answer, const Answer& alone, bool cut) {
    ASSERT_EQ(answer.finals, 1);
    ASSERT_NE(answer.finish, FinishReason::kError) << answer.error;
    const bool whole = answer.finish == FinishReason::kLength || (answer.finish == FinishReason::kStop && !cut);
    ASSERT_TRUE(!whole || answer == alone) << answer << " alone " << alone;
    ASSERT_LE(answer.tokens.size(), alone.tokens.size());
    ASSERT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), alone.tokens.begin()));
    ASSERT_TRUE(std::equal(answer.logprobs.begin(), answer.logprobs.end(), alone.logprobs.begin()));
    ASSERT_LE(answer.completion_tokens, static_cast<int64_t>(answer.tokens.size()));
  }

  std::mt19937 random_;
  std::vector<Request> requests_;
  Recorder alone_;
  std::vector<RequestId> alone_ids_;
};

// Tokens that are sure come without steps of their own, on both kinds of devices, and with the log-probability of a draw.
TEST_F(EngineOverlap, ForcedTokensTakeNoSteps) {
  Answer drawn;
  for (const char* device : {"cpu", "delayed"}) {
    for (const bool tells : {false, true}) {
      open(device, {.pages = 6});
      Request asked = request(5, 80);
      asked.sampling.num_logprobs = 2;
      const RequestId id = value(engine_->submit(asked, seen_.handler(), std::make_unique<ForcingMask>(tells)));
      run_until_idle(*engine_);
      if (drawn.tokens.empty()) drawn = seen_[id];
      EXPECT_EQ(seen_[id], drawn) << device << tells;
      EXPECT_EQ(drawn.tokens.size(), 80u);
      const EngineStats stats = engine_->stats();
      EXPECT_EQ(stats.forced_tokens > 30, tells) << device;
      EXPECT_EQ(stats.steps < 60, tells) << device;
      expect_all_free(*engine_);
    }
  }
}

TEST_F(EngineOverlap, AnswersAreThoseOfALoneRun) {
  const auto shuffle = static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed());
  // A drafter that is never right soon rests, and steps overlap between its trials.
  const OracleDrafter wrong({0x1f});
  int64_t behind = 0, preempted = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Lives lives(100 * shuffle + seed);
    open("cpu", {.pages = 16, .prefix_cache = false, .overlap = OverlapMode::kOff});
    lives.answer_alone(*engine_);
    for (const bool drafts : {false, true}) {
      for (const char* device : {"cpu", "delayed"}) {
        const SpeculationOptions speculation{.mode = SpeculationMode::kAuto, .drafter = drafts ? &wrong : nullptr};
        open(device, {.max_batch = 5,
                      .step_tokens = 24,
                      .queue_limit = 20,
                      .pages = 9,
                      .snapshot_bytes = 1,
                      .speculation = speculation,
                      .overlap = OverlapMode::kOn});
        lives.live(*engine_, 700);
        if (HasFatalFailure()) FAIL() << device << ", seed " << 100 * shuffle + seed;
        EXPECT_TRUE(drafts || model_->behind > 50) << device;
        behind += drafts ? model_->behind : 0;
        preempted += engine_->stats().preempted;
      }
    }
  }
  EXPECT_GT(behind, 0);
  EXPECT_GT(preempted, 20);
}

TEST_F(EngineOverlap, AFailureOfTheDeviceEndsWhatRan) {
  for (int64_t step = 1; step <= 6; ++step) {
    open("delayed", {.max_batch = 2});
    model_->fails_at = step;
    const RequestId id = value(engine_->submit(request(5, 20), seen_.handler()));
    const RequestId waits = value(engine_->submit(request(9, 3), seen_.handler()));
    const RequestId third = value(engine_->submit(request(3, 2), seen_.handler()));
    run_until_idle(*engine_);
    EXPECT_EQ(seen_[id].finish, FinishReason::kError);
    EXPECT_NE(seen_[id].error.find("freed too early"), std::string::npos) << seen_[id].error;
    EXPECT_LT(seen_[id].tokens.size(), static_cast<size_t>(step));
    EXPECT_EQ(seen_[waits].finals, 1);
    EXPECT_EQ(seen_[third].finals, 1);
    expect_all_free(*engine_);
    const RequestId next = value(engine_->submit(request(5, 3), seen_.handler()));
    run_until_idle(*engine_);
    EXPECT_EQ(seen_[next].finish, FinishReason::kLength);
    EXPECT_TRUE(engine_->health());
    expect_all_free(*engine_);
  }
}

// A step that does not end is an engine that makes no progress, whatever has been launched behind it.
TEST_F(EngineOverlap, AStalledStepIsSeen) {
  ManualClock clock;
  open("delayed", {.clock = &clock});
  std::promise<void> go_on;
  std::atomic<bool> stands = false;
  model_->before = [&] {
    if (model_->steps != 3) return;
    device_->host_call([&] {
      stands = true;
      go_on.get_future().wait();
    });
  };
  value(engine_->submit(request(5, 12), seen_.handler()));
  engine_->start();
  while (!stands) std::this_thread::yield();
  // What the engine can still do without this step's end is one turn.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  clock.advance_us(7'000'000);
  EXPECT_EQ(engine_->progress().since_us, 7'000'000);
  EXPECT_EQ(engine_->progress().inside, 1);
  go_on.set_value();
  while (engine_->progress().inside > 0) std::this_thread::yield();
  EXPECT_EQ(engine_->progress().since_us, 0);
  engine_->stop();
  expect_all_free(*engine_);
}

}  // namespace
}  // namespace deepinfer
