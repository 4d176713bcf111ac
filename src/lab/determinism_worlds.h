// lab/determinism_worlds.h - in how many ways `verify determinism` answers its requests, and what it asks.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"
#include "engine/engine.h"
#include "grammar/constraint.h"
#include "model/language_model.h"

namespace deepinfer {

// One way of answering the requests.
struct World {
  std::string axis, value;
  int32_t together = 1;     // requests in the engine at once
  int32_t step_tokens = 0;  // 0 = the default
  bool cached = false;      // from a cache that has answered everything once
  bool prefixes = false;    // from a cache that knows a shorter prefix of each prompt
  bool crowded = false;     // a pool that holds two of the longest requests
  bool aborts = false;      // others come and are cancelled in between
  int threads = 1;
  bool delayed = false;
  // Drafts verified per step, 0 = no speculation; by the model's own drafter, or by one that knows the answers and is right where
  // a pattern says so (model/oracle_drafter.h).
  int32_t drafts = 0;
  std::vector<uint32_t> patterns;
  SpeculationSchedule schedule = SpeculationSchedule::kFixed;
  bool constrained = false;          // the requests with a grammar
  bool default_replay_only = false;  // of the quick set: the others differ in where a prompt starts, not in how it goes on
};

// The covering set of cells, or every one when `full`.
std::vector<World> determinism_worlds(bool full);

// Prompt lengths around every border, drawn in all ways by turns; the shorter ones when `full` is off.
std::vector<Request> determinism_requests(const LanguageModel& model, int64_t context, bool full);
// A few of `requests`, held to the constraints by turns.
std::vector<Request> constrained_requests(const std::vector<Request>& requests,
                                          const std::vector<std::shared_ptr<const Constraint>>& constraints);

EngineOptions determinism_engine(const World& world, ReplayMode replay, int64_t context, int32_t keep_tokens, int64_t longest,
                                 int64_t page_tokens);

}  // namespace deepinfer
