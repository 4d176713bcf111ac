// What the engine tells about its steps and about where a request's time went: the step log can be planned again, phases add up,
// and the reason of every miss arrives with the final event.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "host/compressed_file.h"
#include "model/oracle_drafter.h"
#include "model/scripted_model.h"
#include "scheduler/step_log.h"
#include "tests/engine_harness.h"

namespace deepinfer {
namespace {

constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 256, "page_tokens": 16, "window": 16}
{"hash": {"tokens": 200, "seed": 5}})";

class EngineSteps : public ::testing::Test {
 protected:
  void open(EngineOptions options) {
    options.context = 256;
    engine_ = value(Engine::create(*device_, model_, options));
  }
  // The final event of a request that runs alone.
  Event last(Request request) {
    Event seen;
    value(engine_->submit(std::move(request), [&](const Event& event) { seen = event; }));
    run_until_idle(*engine_);
    return seen;
  }
  static Request prompt(int32_t count, TokenId first, std::string tenant = "a") {
    Request request;
    for (int32_t i = 0; i < count; ++i) request.prompt.push_back(3 + (first + i) % 60);
    request.max_tokens = 4;
    request.tenant = std::move(tenant);
    request.sampling.seed = 1;
    return request;
  }

  ManualClock clock_;
  std::unique_ptr<Device> device_ = device_named("cpu", 1);
  ScriptedModel model_{value(parse_script(kScript, "steps"))};
  // The steps of an engine with prompts of many lengths and shared beginnings, drafts that are right and wrong by turns, and
  // a pool that is too small.
  std::vector<std::string> busy_steps();

  const OracleDrafter drafter_{{0x1f, 0x3}};
  std::unique_ptr<Engine> engine_;
};

std::vector<std::string> EngineSteps::busy_steps() {
  std::vector<std::string> lines;
  open({.max_batch = 5,
        .step_tokens = 24,
        .queue_limit = 64,
        .pages = 21,
        .snapshot_bytes = 1,
        .speculation = {.mode = SpeculationMode::kOn, .schedule = SpeculationSchedule::kFixed, .drafter = &drafter_},
        .step_log = [&](std::string_view line) { lines.emplace_back(line); }});
  std::mt19937 random(4);
  for (int i = 0; i < 24; ++i) {
    Request request = prompt(1 + static_cast<int32_t>(random() % 120), i % 3 == 0 ? 0 : static_cast<TokenId>(random() % 60));
    request.max_tokens = 1 + static_cast<int32_t>(random() % 60);
    request.priority = static_cast<int32_t>(random() % 2);
    request.tenant = random() % 3 == 0 ? "a" : "b";
    submit_patiently(*engine_, request, [](const Event&) {});
  }
  run_until_idle(*engine_);
  return lines;
}

// When decisions change on purpose, this makes the file of the next test anew: `zstd -19 --rm` it.
TEST_F(EngineSteps, DISABLED_RecordTheSteps) {
  std::ofstream file("tests/recorded/steps.jsonl");
  const auto lines = busy_steps();
  for (size_t i = 0; i < 80; ++i) file << lines[i] << '\n';
}

// Steps of an engine that served prompts of many lengths with drafts, hits and preemptions.
TEST(StepLog, ARecordedRunIsPlannedAgain) {
  const auto text = read_maybe_compressed(DEEPINFER_SOURCE_DIR "/tests/recorded/steps.jsonl.zst");
  ASSERT_TRUE(text.ok()) << text.error().message;
  std::istringstream lines(*text);
  std::string line;
  int steps = 0;
  for (; std::getline(lines, line); ++steps) {
    const Status same = replay_step(line);
    ASSERT_TRUE(same) << "line " << steps + 1 << ": " << same.error().message;
  }
  EXPECT_GT(steps, 50);
}

TEST_F(EngineSteps, EveryStepOfABusyEngineIsPlannedAgain) {
  const auto lines = busy_steps();
  EXPECT_GT(engine_->stats().preempted, 0);
  EXPECT_EQ(lines.size(), static_cast<size_t>(engine_->stats().steps));
  for (const std::string& line : lines) {
    const Status same = replay_step(line);
    ASSERT_TRUE(same) << same.error().message << "\n" << line;
  }
}

TEST_F(EngineSteps, StepsAreCountedByKind) {
  open({.max_batch = 2, .step_tokens = 8, .pages = 16});
  last(prompt(20, 0));
  const EngineStats stats = engine_->stats();
  int64_t steps = 0;
  for (const StepTimes& times : stats.times) steps += times.steps;
  EXPECT_EQ(steps, stats.steps);
  EXPECT_EQ(stats.times[static_cast<size_t>(StepKind::kPrefill)].steps, 3);
  EXPECT_EQ(stats.times[static_cast<size_t>(StepKind::kDecode)].steps, 3);
  EXPECT_STREQ(step_kind_name(StepKind::kMixed), "mixed");
}

TEST_F(EngineSteps, ThePhasesOfARequestAddUp) {
  open({.max_batch = 1, .step_tokens = 8, .pages = 16, .prefix_cache = false, .clock = &clock_});
  std::map<RequestId, RequestTrace> traces;
  const EventHandler handler = [&](const Event& event) {
    if (event.report) traces[event.request] = event.report->trace;
  };
  const RequestId first = value(engine_->submit(prompt(20, 0), handler));
  const RequestId second = value(engine_->submit(prompt(5, 9), handler));
  clock_.advance_us(7);
  bool more = true;
  while (more) {
    more = engine_->step();
    clock_.advance_us(100);
  }
  // Three steps of the prompt; the third draws the first token.
  EXPECT_EQ(traces[first].waiting_us, 7);
  EXPECT_EQ(traces[first].prefill_us, 200);
  EXPECT_EQ(traces[first].decode_us, 300);
  EXPECT_EQ(traces[first].prefill_steps, 3);
  EXPECT_EQ(traces[first].decode_steps, 3);
  EXPECT_EQ(traces[second].waiting_us, 607);
  EXPECT_EQ(traces[second].prefill_us, 0) << "its prompt and first token are one step";
  EXPECT_EQ(traces[second].decode_us, 300);
}

TEST_F(EngineSteps, APreemptedRequestSaysSo) {
  open({.max_batch = 2, .step_tokens = 16, .pages = 16, .clock = &clock_});
  std::vector<RequestTrace> traces;
  for (int i = 0; i < 2; ++i) {
    Request request = prompt(100, i * 7);
    request.max_tokens = 120;
    value(engine_->submit(std::move(request), [&](const Event& event) {
      if (event.finish != FinishReason::kNone) traces.push_back(event.report->trace);
    }));
  }
  while (engine_->step()) clock_.advance_us(10);
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(traces[0].preempted, 0);
  EXPECT_GE(traces[1].preempted, 1);
  EXPECT_GT(traces[1].waiting_us, traces[0].waiting_us);
}

TEST_F(EngineSteps, EveryMissHasAReason) {
  open({.max_batch = 1, .step_tokens = 64, .pages = 16, .snapshot_bytes = 1});
  const auto reason = [&](Request request) { return last(std::move(request)).report->prefix.value(); };
  EXPECT_EQ(reason(prompt(10, 0)).reason, MissReason::kShort);
  EXPECT_EQ(reason(prompt(80, 0)).reason, MissReason::kNew);
  PrefixVerdict verdict = reason(prompt(80, 0));
  EXPECT_EQ(verdict.reason, MissReason::kNone);
  EXPECT_EQ(verdict.cached_tokens, 64);
  Request changed = prompt(80, 0);
  changed.prompt[40] = 50;
  verdict = reason(changed);
  EXPECT_EQ(verdict.reason, MissReason::kChanged);
  EXPECT_EQ(verdict.cached_tokens, 32);
  EXPECT_EQ(verdict.first_different, 40);
  EXPECT_EQ(verdict.here.ids[0], 50);
  EXPECT_EQ(verdict.there.ids[0], 43);
  EXPECT_EQ(reason(prompt(80, 0, "b")).reason, MissReason::kNew);
  EXPECT_EQ(operator_reason(reason(prompt(80, 0, "c"))), MissReason::kOtherTenant);
  // Something large takes the room.
  reason(prompt(250, 30));
  EXPECT_EQ(reason(prompt(80, 0)).reason, MissReason::kEvicted);
  open({.max_batch = 1, .pages = 16, .prefix_cache = false});
  EXPECT_EQ(reason(prompt(80, 0)).reason, MissReason::kOff);
}

}  // namespace
}  // namespace deepinfer
