// Deadlines and progress, with a clock that stands until it is moved.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "model/script.h"
#include "model/scripted_model.h"
#include "tests/engine_harness.h"

namespace deepinfer {
namespace {

class EngineClock : public ::testing::Test {
 protected:
  EngineClock() : model_(value(parse_script("{\"scripted\": 1, \"vocab\": 512}\n{\"bytes\": \"abcdefgh\"}\n", "test"))) {
    engine_ = value(
        Engine::create(*device_, model_, {.max_batch = 1, .step_tokens = 8, .clock = &clock_, .step_end = [this] { ++ends_; }}));
  }
  Request request(int64_t deadline_us) const {
    Request out;
    out.prompt = {5, 6, 7};
    out.max_tokens = 6;
    out.stop_ids = {1};
    out.deadline_us = deadline_us;
    return out;
  }

  ManualClock clock_;
  std::unique_ptr<Device> device_ = device_named("cpu", 1);
  ScriptedModel model_;
  int ends_ = 0;
  std::unique_ptr<Engine> engine_;
  Recorder answers_;
};

TEST_F(EngineClock, ARunningRequestEndsAtItsDeadline) {
  const RequestId id = value(engine_->submit(request(clock_.now_us() + 100), answers_.handler()));
  for (int i = 0; i < 3; ++i) engine_->step();
  EXPECT_EQ(answers_[id].tokens.size(), 3u);
  clock_.advance_us(100);
  run_until_idle(*engine_);
  EXPECT_EQ(answers_[id].finish, FinishReason::kDeadline);
  EXPECT_EQ(answers_[id].tokens.size(), 3u);
  expect_all_free(*engine_);
}

TEST_F(EngineClock, AWaitingRequestEndsAtItsDeadline) {
  const RequestId first = value(engine_->submit(request(0), answers_.handler()));
  const RequestId second = value(engine_->submit(request(clock_.now_us() + 100), answers_.handler()));
  engine_->step();
  clock_.advance_us(200);
  engine_->step();
  EXPECT_EQ(answers_[second].finish, FinishReason::kDeadline);
  EXPECT_TRUE(answers_[second].tokens.empty());
  run_until_idle(*engine_);
  EXPECT_EQ(answers_[first].tokens.size(), 6u);
  expect_all_free(*engine_);
}

TEST_F(EngineClock, ProgressIsTheAgeOfTheLastStep) {
  EXPECT_EQ(engine_->progress().inside, 0);
  clock_.advance_us(1'000'000);
  EXPECT_EQ(engine_->progress().since_us, 0) << "an idle engine is not late";
  value(engine_->submit(request(0), answers_.handler()));
  EXPECT_EQ(engine_->progress().since_us, 0) << "work that has just come is not late";
  clock_.advance_us(500);
  EXPECT_EQ(engine_->progress().since_us, 500);
  EXPECT_EQ(engine_->progress().inside, 1);
  engine_->step();
  EXPECT_EQ(engine_->progress().since_us, 0);
  run_until_idle(*engine_);
  EXPECT_EQ(engine_->progress().inside, 0);
  EXPECT_GE(ends_, 6);
}

}  // namespace
}  // namespace deepinfer
