// engine/engine.h - runs requests: inbox, plan, batch, forward, sample, commit, emit.
//
// One engine owns the state of up to `max_batch` running sequences on one device, or spread over the ranks of its model
// (LanguageModel::ranks): rank 0's thread is the engine's, plans for all and gives each new sequence its rank. Each step takes a
// row from every decoding sequence and a chunk of prompts, runs them as one flat batch, draws the next tokens on the device and
// tells the handlers; where the device runs beside the host the next step is launched before that. The engine knows token ids
// only (core/token_service.h has the contract of a request's life).
//
// Promise: an accepted request gets exactly one final event, also when a step fails or the engine is stopped; an answer
// depends on its request, seed and the model only - never on company, chunking, slots or pages; a request that can
// never run is refused by submit() with the reason; no page or slot is leased when nothing runs.
// Threads: submit(), cancel(), finish(), health() and stats() from any thread; step() and stop() from one thread, or
// start() and let the engine's own thread do the steps.
//
//   DI_TRY(auto engine, Engine::create(device, model, {}));
//   engine->start();
//   EventQueue queue;
//   DI_TRY(RequestId id, engine->submit(request, queue.handler()));
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "core/token_service.h"
#include "engine/limits.h"
#include "grammar/token_mask.h"
#include "kvcache/sequence_cache.h"
#include "model/drafter.h"
#include "model/language_model.h"
#include "ops/device.h"
#include "policy/ranks.h"
#include "scheduler/draft_control.h"

namespace deepinfer {

// kCoupled: a draft stands if it is the token that is drawn anyway, so answers keep their bytes. kRejection (the paper's): stands
// by chance, so that answers keep their distribution and more drafts stand; which token comes for a seed then depends on load.
enum class DraftVerification { kCoupled, kRejection };

// Drafts of the model's own drafter, verified by the model (speculation.md).
struct SpeculationOptions {
  SpeculationMode mode = SpeculationMode::kAuto;
  int32_t max_draft = 5;  // drafts verified per sequence and step, at most kMaxDraft
  SpeculationSchedule schedule = SpeculationSchedule::kSync;
  int32_t lag = 2;  // of kAsync
  DraftVerification verify = DraftVerification::kCoupled;
  Temperatures temperatures = kNoTemperatures;  // of an earlier fit for this model and way of verifying
  // Called by the engine's thread after a fit, every 10,000 blocks of which the outcome is known as a whole.
  std::function<void(const Temperatures&)> fitted;
  const Drafter* drafter = nullptr;  // instead of the model's own; must outlive the engine
};

// Whether a step is planned and launched while the one before is still being computed (scheduler/step_ahead.h). Changes speed and
// when a token is heard of, never bytes. kAuto: on devices that run beside the host.
enum class OverlapMode { kOff, kOn, kAuto };

struct EngineOptions {
  int32_t max_batch = kDefaultBatch;         // sequences that run at once
  int32_t step_tokens = kDefaultStepTokens;  // rows of one step, at least max_batch
  int32_t queue_limit = kDefaultQueue;       // accepted requests beyond max_batch, which wait for a slot
  int64_t context = 0;                       // tokens of one sequence; 0 = kDefaultContext, or less if model or pool hold less
  int32_t pages = kDefaultPages;             // of the pool; 0 = max_batch sequences of full context
  ReplayMode replay = ReplayMode::kDecoder;
  int32_t keep_tokens = 0;                         // R of the decoder replay; 0 = the model's window
  bool prefix_cache = true;                        // reuse what earlier requests computed
  int64_t snapshot_bytes = kDefaultSnapshotBytes;  // host memory for the state at page borders
  int64_t snapshot_every = 0;                      // tokens of a prompt, 0 = at its ends and branches only
  StoreTierOptions store;                          // pages on a disk; without a disk: none
  const Clock* clock = nullptr;                    // for deadlines and progress(); none = neither. Must outlive the engine
  SpeculationOptions speculation;
  OverlapMode overlap = OverlapMode::kAuto;
  // Called by the engine's thread when the events of a step have been delivered, so that a consumer is woken once a step
  // and not once a token.
  std::function<void()> step_end;
  // Which prefixes came into the cache and left it in a step, from the engine's thread; empty = not kept.
  std::function<void(std::span<const PageChange>)> pages_changed;
  // Gets every step as a line (scheduler/step_log.h), from the engine's thread; empty = none is made.
  std::function<void(std::string_view line)> step_log;
};

// What the zeros of `options` become with this model; what create() would refuse is an Error.
Result<EngineOptions> resolve(const LanguageModel& model, EngineOptions options);

// Whether steps finish (EngineOptions::clock): how long the engine has had work without finishing one.
struct EngineProgress {
  int32_t inside = 0;    // requests accepted and not ended
  int64_t since_us = 0;  // since the last finished step, or since there has been work; 0 when there is none
};

struct SpeculationStats {
  int64_t passes = 0;  // of the drafter
  // By place in the block: drafts made that might have been verified, those that were, and those that stood.
  std::array<int64_t, kMaxDraft> drafted{}, verified{}, accepted{};
  double draft_us = 0, verify_us = 0;  // time of draft passes and of the steps behind them
  DraftControlStats control;
  // What decisions go by: a step by rows, for each class of context; a draft pass by sequences.
  std::array<CostTable, ContextCosts::kClasses> step_costs{};
  CostTable pass_costs{};
};

// Steps by what their rows are.
enum class StepKind { kDecode, kPrefill, kMixed };
inline constexpr size_t kNumStepKinds = 3;
const char* step_kind_name(StepKind kind);

struct StepTimes {
  int64_t steps = 0, rows = 0;
  int64_t us = 0;  // from the forward pass, or the end of the step before, to the drawn tokens
};

// Work of ranks (policy/ranks.h), in rows without context: of each, and of the one with most of it in each step. With equal work
// in every step the latter is the mean of the former.
struct RankStats {
  int32_t ranks = 1;  // with one, nothing is counted
  std::array<double, kMaxRanks> work{};
  double busiest = 0;

  // How much longer steps were than with equal work; 1 where there is no work.
  double imbalance() const;
};

struct EngineStats {
  int64_t steps = 0, rows = 0;                 // run so far
  std::array<StepTimes, kNumStepKinds> times;  // by StepKind
  int64_t plan_us = 0;                         // choosing who starts and which rows run
  int64_t between_us = 0;  // in which nothing computed although there was work: from one step's end to the next one's begin
  int64_t accepted = 0, ended = 0;                   // requests; equal when nothing waits or runs
  int64_t prompt_tokens = 0, completion_tokens = 0;  // of ended requests
  int32_t waiting = 0, running = 0;
  int32_t pages = 0, free_pages = 0, leased_pages = 0, cached_pages = 0;
  int64_t preempted = 0;      // times a running request gave its pages up
  int64_t forced_tokens = 0;  // of answers, which no step drew
  PrefixStats prefix;
  StoreTierStats store;
  SpeculationStats speculation;
  RankStats ranks;
};

class Engine final : public TokenService {
 public:
  // `device` and `model` must outlive the engine. Errors name the option that does not fit.
  static Result<std::unique_ptr<Engine>> create(Device& device, const LanguageModel& model, const EngineOptions& options);
  ~Engine() override;

  Result<RequestId> submit(Request request, EventHandler handler) override;
  // The same; every token of the answer - of what follows constraint.begins_after, where that is set - is one that `mask` allows.
  // Its state on entry is that of an empty answer.
  Result<RequestId> submit(Request request, EventHandler handler, std::unique_ptr<TokenMask> mask);
  // The same as the first, for a prompt whose pages come from another engine or go to one.
  Result<RequestId> submit(Request request, EventHandler handler, PageTransfer transfer);
  void cancel(RequestId id) override;
  void finish(RequestId id, int64_t last_index) override;

  // One turn of the loop; false when there was nothing to do. True while the store is read and nothing else is to do.
  bool step();
  // Runs step() on a thread of its own until stop().
  void start();
  // Refuses new requests, ends the others with kCancelled, joins the thread. Idempotent; not from a handler.
  void stop();

  // Ok, or why the last step failed; a step that works clears it.
  Status health() const;
  EngineStats stats() const;
  EngineProgress progress() const;
  // Bytes of a page, of a state at a border and of a whole one, as they travel between engines (kvcache/page_transfer.h).
  struct TransferSizes {
    size_t page = 0, state = 0, whole = 0;
  };
  TransferSizes transfer_sizes() const;
  // The options in force, zeros replaced.
  const EngineOptions& options() const;

 private:
  class Loop;
  explicit Engine(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace deepinfer
