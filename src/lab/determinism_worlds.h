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

// What is asked.
enum class Questions {
  kPlain,        // prompts of lengths around every border, drawn in all ways by turns
  kConstrained,  // some of them, held to grammars
  kChoices,      // some of them, three choices each
  kBorders,      // one prompt, of which 1, 2, ... pages were asked before by the same tenant
  kTurns,        // a conversation that goes on by one token up to R + W - 1
};

// How pages come from a store on a disk: from an engine that ended, was killed while it wrote, or still runs.
enum class StoreWay { kNone, kRestart, kKilled, kShared };

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
  Questions questions = Questions::kPlain;
  bool default_replay_only = false;  // of the quick set: the others differ in where a prompt starts, not in how it goes on
  bool before = false;               // beginnings of the prompts (Asked::before) are asked first
  int32_t copies = 1;                // of every request
  int32_t keep_tokens = 0;           // R of the decoder replay, also of the answers alone; 0 = what was asked for
  int32_t ranks = 1;                 // threads among which the experts are spread
  StoreWay store = StoreWay::kNone;
  float expert_memory = 0;  // GB of experts that stay in memory, 0 = all
};

// Requests, and how many tokens of each prompt are asked first where the world wants that; empty = some of most.
struct Asked {
  std::vector<Request> requests;
  std::vector<int64_t> before;
};

inline constexpr int32_t kWholePrompt = 1 << 30;  // World::step_tokens

// The covering set of cells, or every one when `full`.
std::vector<World> determinism_worlds(bool full);

// What of `questions` fits the context; the shorter ones when `full` is off. kConstrained is made of `plain` and the constraints.
Asked determinism_questions(Questions questions, const LanguageModel& model, int64_t context, bool full);
Asked constrained_questions(const Asked& plain, const std::vector<std::shared_ptr<const Constraint>>& constraints);

EngineOptions determinism_engine(const World& world, ReplayMode replay, int64_t context, int32_t keep_tokens, int64_t longest,
                                 int64_t page_tokens);

}  // namespace deepinfer
