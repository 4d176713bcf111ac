// engine/loop.h - the engine's state and the phases of a step.
//
// A turn: read the inbox, retire what ended, admit, grow, propose drafts, plan, launch the step, settle the one before it,
// enqueue the draws. To settle is to wait, to read the inbox again - a cancel or finish that came meanwhile holds for this step's
// tokens - to commit and to retire. A step whose successor's rows are known stays in flight until that one has been launched; any
// other is settled in its own turn (scheduler/step_ahead.h). So two forward passes are under way at most, but the draws of one
// step only: the sampler's staging is written between a wait and the next enqueue, and a draw knows every token before it. What a
// sequence holds is given back when no step in flight has rows of it, and nobody is preempted while one is. Threads: submit(),
// post(), close(), health() and stats() from any thread; the rest from the thread that drives the engine.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/step_plan.h"
#include "engine/engine.h"
#include "engine/inbox.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "engine/speculation.h"
#include "engine/waiting_queue.h"
#include "kvcache/sequence_cache.h"
#include "policy/fairness.h"
#include "policy/preemption.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_log.h"

namespace deepinfer {

class Engine::Loop {
 public:
  static Result<std::unique_ptr<Loop>> create(Device& device, const LanguageModel& model, const EngineOptions& options);

  Result<RequestId> submit(Request request, EventHandler handler, std::unique_ptr<TokenMask> mask, PageTransfer transfer);
  void post(InboxMessage message) { inbox_.push(std::move(message)); }
  Status health() const;
  EngineStats stats() const;
  EngineProgress progress() const;
  TransferSizes transfer_sizes() const {
    const SequenceStore& store = std::as_const(*cache_).store();
    return {static_cast<size_t>(model_.layout().page_bytes), static_cast<size_t>(store.snapshot_bytes()),
            static_cast<size_t>(store.whole_state_bytes())};
  }
  const EngineOptions& options() const { return options_; }

  bool step();
  void start();
  void stop();

 private:
  Loop(Device& device, const LanguageModel& model, const EngineOptions& options);

  Result<std::unique_ptr<Sequence>> accept(Request request, EventHandler handler) const;
  bool read_inbox();
  bool turn();
  void expire();
  void note_progress();
  void apply(InboxMessage message);
  void apply_finish(Sequence& sequence, int64_t last_index);
  Sequence* find(RequestId id);
  int64_t now_us() const { return options_.clock ? options_.clock->now_us() : step_clock_.now_us(); }
  void wait_for_slot(std::unique_ptr<Sequence> sequence);
  void admit();
  int64_t pages_to_reserve() const;
  double us_per_prompt_token() const;
  Opening open(Sequence& sequence);
  int32_t choose_rank_of(const Sequence& sequence);
  void grow();
  void preempt(size_t index);
  Status propose();
  void make_room_for_drafts(Sequence& sequence);
  // A step from its plan until its results have been taken.
  struct Flight {
    StepPlan plan;
    std::vector<DrawRow> draws;  // of its logit rows
    Ticket ticket = 0;           // behind the draws
    int64_t begin_us = 0;
    Status status;  // a failure that was noticed elsewhere
  };
  void plan(Flight& flight);
  void run(Flight& next, Status status);
  Status launch(Flight& flight);
  Status enqueue_draws(Flight& flight);
  bool stays(const Flight& flight) const;
  bool settle();
  void land(const Flight& flight);
  void give_up(const Error& error, const Flight& flight);
  StateView state() const;
  void commit(const StepPlan& plan);
  int32_t commit_rows(Sequence& sequence, const SequenceRows& rows, size_t first_logits);
  bool mask_is_ready(Sequence& sequence, size_t row);
  void append_forced(Sequence& sequence);
  bool follow_constraint(Sequence& sequence, TokenId token);
  Status take_over(Sequence& sequence);
  void commit_token(Sequence& sequence, const SampleResult& result);
  void fail_running(const Error& error);
  bool retire();
  void retire_waiting();
  void deliver_end(std::unique_ptr<Sequence> sequence);
  void note_times(const Flight& flight);
  void note_ranks(const StepPlan& plan);
  void publish(const Status& status, const StepPlan* ran);

  Device& device_;
  const LanguageModel& model_;
  EngineOptions options_;
  ReplayRules replay_;
  std::unique_ptr<SequenceCache> cache_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Speculation> speculation_;  // null = off

  Inbox inbox_;
  std::atomic<RequestId> next_id_{1};
  std::atomic<int32_t> num_inside_{0};  // accepted and not ended
  std::atomic<int64_t> progress_us_{0};
  std::thread thread_;

  WaitingQueue waiting_;
  bool loading_ = false;                                               // one of them waits for the store
  int64_t waiting_deadline_us_ = std::numeric_limits<int64_t>::max();  // no earlier one waits
  std::vector<std::unique_ptr<Sequence>> running_;                     // by admission
  TokenAccounts accounts_;
  // Reused by every step.
  std::vector<InboxMessage> messages_;
  std::vector<PreemptionCandidate> candidates_;
  std::vector<RunningSequence> plannable_;
  PromptShares shares_;
  std::vector<Sequence*> by_slot_;
  std::vector<RankLoad> rank_loads_;  // of all ranks
  std::vector<Sequence*> decoding_;
  SteadyClock step_clock_;  // for the cost of steps, which decides only how many drafts are verified
  int64_t step_us_ = 0;
  int64_t idle_since_us_ = 0;  // end of the last step while there is work; 0 = there was none
  std::vector<std::unique_ptr<Sequence>> ended_;
  bool overlaps_ = false;
  Flight flights_[2];            // take turns
  Flight* in_flight_ = nullptr;  // one of them, or none

  EngineStats counts_;  // the loop's own; published under the mutex
  mutable std::mutex published_mutex_;
  EngineStats published_;
  Status health_;
};

}  // namespace deepinfer
