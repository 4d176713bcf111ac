// A cancel finds a request in every phase: waiting, in its prompt, in its answer, while its pages come from the store and while
// its mask is not ready. It ends at the next step boundary, gives everything back, and those beside it never notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "model/scripted_model.h"
#include "tests/rule_cases.h"
#include "tests/speculation_harness.h"

namespace deepinfer {
namespace {

constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 512, "page_tokens": 16, "window": 16}
{"hash": {"tokens": 200, "seed": 3}})";

// Not ready until it is opened; then any token may come.
class SlowMask final : public TokenMask {
 public:
  explicit SlowMask(const std::atomic<bool>& open) : open_(open) {}
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    std::ranges::fill(words, ~0u);
    return open_ ? MaskFill::kReady : MaskFill::kUnfinished;
  }
  bool accept(TokenId) override { return true; }
  void rollback(int32_t) override {}
  bool complete() const override { return true; }

 private:
  const std::atomic<bool>& open_;
};

class EngineCancel : public ::testing::TestWithParam<const char*> {
 protected:
  void open(EngineOptions options) {
    options.context = 512;
    engine_.reset();
    seen_ = Recorder();  // ids begin anew
    engine_ = value(Engine::create(*device_, model_, options));
  }
  static Request request_of(uint32_t seed, int32_t prompt, int32_t answer) {
    std::mt19937 random(seed);
    return mixed_request(random, 67, prompt, answer);
  }
  Answer alone(const Request& request) {
    open({.max_batch = 1, .pages = 32, .prefix_cache = false, .speculation = kSpeculationOff});
    return run_requests(*engine_, {request}).answers[0];
  }

  std::unique_ptr<Device> device_ = device_named(GetParam(), 1);
  ScriptedModel model_{value(parse_script(kScript, "cancel"))};
  std::unique_ptr<Engine> engine_;
  Recorder seen_;
};

TEST_P(EngineCancel, WhileItsMaskIsNotReady) {
  const Request request = request_of(1, 20, 8), neighbour = request_of(2, 30, 30);
  const Answer want = alone(neighbour);
  open({.max_batch = 2, .pages = 64, .speculation = kSpeculationOff});
  std::atomic<bool> ready = false;
  const RequestId id = value(engine_->submit(request, seen_.handler(), std::make_unique<SlowMask>(ready)));
  const RequestId beside = value(engine_->submit(neighbour, seen_.handler()));
  while (seen_[beside].tokens.size() < 5) engine_->step();
  EXPECT_TRUE(seen_[id].tokens.empty());
  EXPECT_EQ(seen_[id].finals, 0);
  engine_->cancel(id);
  for (int steps = 0; steps < 3; ++steps) engine_->step();
  EXPECT_EQ(seen_[id].finish, FinishReason::kCancelled);
  EXPECT_EQ(seen_[beside].finals, 0);
  run_until_idle(*engine_);
  EXPECT_EQ(seen_[beside], want);
  expect_all_free(*engine_);
}

// Reads of the disk stand still until the gate opens.
class Gate {
 public:
  Status pass(std::string_view operation) {
    std::unique_lock lock(mutex_);
    if (operation == "read") opened_.wait(lock, [&] { return open_; });
    return {};
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST_P(EngineCancel, WhileItsPagesComeFromTheStore) {
  const DateClock date;
  MemoryDisk disk;
  EngineOptions options{.max_batch = 2, .pages = 96, .snapshot_bytes = 1 << 24, .speculation = kSpeculationOff};
  options.store = {.disk = &disk, .date = &date, .folder = "/store", .fingerprint = "cancel"};
  options.store.deadline.base_us = 60'000'000;
  const Request request = request_of(3, 400, 6);
  open(options);
  const Answer first = run_requests(*engine_, {request}).answers[0];
  for (const bool joined : {false, true}) {  // another one waits for the same load
    open(options);
    Gate gate;
    disk.set_fault([&](const char* operation, const std::string&) { return gate.pass(operation); });
    const RequestId id = value(engine_->submit(request, seen_.handler()));
    for (int steps = 0; steps < 5; ++steps) EXPECT_TRUE(engine_->step()) << "it waits for the store";
    EXPECT_EQ(engine_->stats().waiting, 1);
    const RequestId other = joined ? value(engine_->submit(request, seen_.handler())) : 0;
    engine_->step();
    engine_->cancel(id);
    engine_->step();
    EXPECT_EQ(seen_[id].finish, FinishReason::kCancelled);
    EXPECT_TRUE(seen_[id].tokens.empty());
    gate.open();
    run_until_idle(*engine_);
    if (joined) {
      EXPECT_EQ(seen_[other], first);
    }
    expect_all_free(*engine_);
    disk.set_fault(nullptr);
    // The next one has the pages, however the load ended.
    const RequestId next = value(engine_->submit(request, seen_.handler()));
    run_until_idle(*engine_);
    EXPECT_EQ(seen_[next], first);
    expect_all_free(*engine_);
    engine_.reset();
  }
}

// After any number of steps, in any company: what it had said is a beginning of its answer, and the others say all of theirs.
TEST_P(EngineCancel, AtAnyMoment) {
  std::vector<Request> list;
  for (uint32_t i = 0; i < 5; ++i)
    list.push_back(request_of(10 + i, 1 + static_cast<int32_t>(i * 37 % 90), 6 + static_cast<int32_t>(i)));
  std::vector<Answer> want;
  for (const Request& request : list) want.push_back(alone(request));
  for (uint32_t steps = 0; steps < 24; ++steps) {
    for (size_t victim = 0; victim < list.size(); victim += 2) {
      open({.max_batch = 3, .step_tokens = 24, .queue_limit = 8, .pages = 40, .speculation = kSpeculationOff});
      std::vector<RequestId> ids;
      for (const Request& request : list) ids.push_back(value(engine_->submit(request, seen_.handler())));
      for (uint32_t i = 0; i < steps; ++i) engine_->step();
      engine_->cancel(ids[victim]);
      run_until_idle(*engine_);
      for (size_t i = 0; i < list.size(); ++i) {
        const Answer& got = seen_[ids[i]];
        if (i != victim || got.finish != FinishReason::kCancelled) {
          ASSERT_EQ(got, want[i]) << steps << " steps, request " << i;
        } else {
          ASSERT_LE(got.tokens.size(), want[i].tokens.size());
          ASSERT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want[i].tokens.begin())) << steps << " steps";
        }
      }
      expect_all_free(*engine_);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineCancel, ::testing::Values("cpu", "delayed"), [](const auto& one) { return one.param; });

}  // namespace
}  // namespace deepinfer
