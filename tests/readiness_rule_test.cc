// R10 of oracle_rules.md: ready means ready. While /health/ready would say 200, a request of one token that comes now is answered
// within as many steps as there is work before it; while steps come on time nobody is told otherwise, under any load; and
// whenever it says no, it says why.
#include <gtest/gtest.h>

#include "model/scripted_model.h"
#include "server/health.h"
#include "tests/engine_harness.h"
#include "tests/rule_cases.h"

namespace deepinfer {
namespace {

constexpr int64_t kStallUs = 1000, kLongestStepUs = 300;
constexpr const char* kScript =
    R"({"scripted": 1, "vocab": 67, "context": 128, "page_tokens": 16, "window": 16, "faults": [{"step": 30, "kind": "error"}]}
{"hash": {"tokens": 100, "seed": 9}})";

class ReadinessRule : public ::testing::Test {
 protected:
  void open(uint32_t seed) {
    random_.seed(seed);
    work_ = 0, late_ = draining_ = false;
    EngineOptions options{
        .max_batch = 1 + below(4), .queue_limit = 200, .context = 128, .pages = 8 + below(30), .clock = &clock_};
    options.step_tokens = options.max_batch + below(30);
    engine_ = value(Engine::create(*device_, model_, options));
  }
  int32_t below(uint32_t limit) { return static_cast<int32_t>(random_() % limit); }

  void submit() {
    const Request request = mixed_request(random_, 67, 1 + below(60), 1 + below(30));
    if (!engine_->submit(request, [](const Event&) {})) return;
    work_ += static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  }
  void step() {
    clock_.advance_us(below(kLongestStepUs));
    engine_->step();
    late_ = false;
  }
  void stand_still() {
    const int64_t us = below(3 * kStallUs);
    clock_.advance_us(us);
    late_ |= engine_->progress().inside > 0 && us > 0;
  }
  Readiness now() const { return draining_ ? readiness_of(nullptr, true, kStallUs) : engine_readiness(*engine_, kStallUs); }

  // A request of one token: how many steps until it is answered. A step may fail, and tells it so.
  void probe() {
    bool answered = false;
    Request request = mixed_request(random_, 67, 5, 1);
    request.priority = 9;
    if (!engine_->submit(request, [&](const Event& event) { answered |= event.finish != FinishReason::kNone; })) return;
    int64_t steps = 0;
    for (; !answered && steps <= work_ + 10; ++steps) step();
    EXPECT_TRUE(answered) << "after " << steps << " steps, with " << work_ << " tokens of work before it";
  }

  ManualClock clock_;
  std::mt19937 random_;
  std::unique_ptr<Device> device_ = device_named("cpu", 1);
  ScriptedModel model_{value(parse_script(kScript, "ready"))};
  std::unique_ptr<Engine> engine_;
  int64_t work_ = 0;  // tokens asked for so far
  bool late_ = false, draining_ = false;
};

TEST_F(ReadinessRule, R10ReadyMeansReady) {
  EXPECT_STREQ(readiness_of(nullptr, false, kStallUs).state, "loading");
  for_each_case([&](uint32_t seed) {
    open(seed);
    for (int i = 0; i < 60; ++i) {
      switch (below(8)) {
        case 0:
        case 1: submit(); break;
        case 2: stand_still(); break;
        default: step();
      }
      draining_ |= i > 50 && below(20) == 0;
      const Readiness seen = now();
      ASSERT_EQ(seen.ready, seen.reason.empty());
      if (seen.ready) {
        ASSERT_FALSE(draining_);
        if (below(6) == 0) probe();
      } else {
        const std::string why = seen.state;
        ASSERT_TRUE(why == "draining" || why == "stalled" || why == "failing") << why;
        ASSERT_EQ(why == "draining", draining_);
        if (why == "stalled") {
          ASSERT_TRUE(late_) << "steps came on time: " << seen.reason;
        }
        if (why == "failing") {
          ASSERT_FALSE(engine_->health());
        }
      }
      if (HasFailure()) return;
    }
    // Whatever it was, it is over when steps have worked; this one's last fault lies behind it then.
    draining_ = false;
    for (int i = 0; i < 2; ++i) {
      submit();
      run_until_idle(*engine_);
    }
    ASSERT_TRUE(now().ready) << now().reason;
  });
}

}  // namespace
}  // namespace deepinfer
