// tests/speculation_harness.h - runs requests with a given speculation and compares what came of them.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "model/oracle_drafter.h"
#include "tests/engine_harness.h"

namespace deepinfer {

inline std::vector<uint32_t> every_pattern() {
  std::vector<uint32_t> patterns(32);
  std::iota(patterns.begin(), patterns.end(), 0u);
  return patterns;
}

inline SpeculationOptions drafting(int32_t max_draft, const Drafter* drafter = nullptr,
                                   SpeculationSchedule schedule = SpeculationSchedule::kFixed) {
  return {.mode = SpeculationMode::kOn, .max_draft = max_draft, .schedule = schedule, .drafter = drafter};
}

inline const SpeculationOptions kSpeculationOff{.mode = SpeculationMode::kOff};

struct Outcome {
  std::vector<Answer> answers;
  EngineStats stats;
};

inline Outcome run_requests(Engine& engine, const std::vector<Request>& requests, bool together = true) {
  Recorder seen;
  std::vector<RequestId> ids;
  for (const Request& request : requests) {
    ids.push_back(submit_patiently(engine, request, seen.handler()));
    if (!together) run_until_idle(engine);
  }
  run_until_idle(engine);
  EXPECT_TRUE(engine.health()) << engine.health().error().message;
  expect_all_free(engine);
  Outcome run{.stats = engine.stats()};
  for (const RequestId id : ids) run.answers.push_back(seen[id]);
  return run;
}

inline void expect_equal(const Outcome& run, const Outcome& alone, const std::string& world) {
  ASSERT_EQ(run.answers.size(), alone.answers.size());
  for (size_t i = 0; i < alone.answers.size(); ++i) EXPECT_EQ(run.answers[i], alone.answers[i]) << world << ", request " << i;
}

// Teaches `drafter` the answers of `run`.
inline void learn(OracleDrafter& drafter, const std::vector<Request>& requests, const Outcome& run) {
  for (size_t i = 0; i < requests.size(); ++i) {
    drafter.learn(*requests[i].sampling.seed, static_cast<int64_t>(requests[i].prompt.size()), run.answers[i].tokens);
  }
}

inline int64_t sum(const std::array<int64_t, kMaxDraft>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace deepinfer
