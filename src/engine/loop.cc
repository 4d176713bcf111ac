#include "engine/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace deepinfer {

bool Engine::Loop::step() {
  const bool worked = turn();
  note_progress();
  if (auto& changes = cache_->page_changes(); !changes.empty()) {
    options_.pages_changed(changes);
    changes.clear();
  }
  if (worked && options_.step_end) options_.step_end();
  return worked;
}

void Engine::Loop::note_progress() {
  if (options_.clock) progress_us_.store(options_.clock->now_us(), std::memory_order_relaxed);
}

// Ends what has run out of time. Those that wait are looked at only when one of them may have.
void Engine::Loop::expire() {
  if (!options_.clock) return;
  const int64_t now = options_.clock->now_us();
  cache_->advance(now);
  const auto look = [now](Sequence& sequence) {
    const int64_t deadline = sequence.request.deadline_us;
    if (deadline > 0 && deadline <= now) sequence.end(FinishReason::kDeadline, "the deadline of the request passed");
  };
  for (auto& sequence : running_) look(*sequence);
  if (now < waiting_deadline_us_) return;
  waiting_deadline_us_ = std::numeric_limits<int64_t>::max();
  waiting_.for_each([&](Sequence& sequence) {
    look(sequence);
    if (!sequence.ended() && sequence.request.deadline_us > 0)
      waiting_deadline_us_ = std::min(waiting_deadline_us_, sequence.request.deadline_us);
  });
  retire_waiting();
}

bool Engine::Loop::turn() {
  bool worked = read_inbox();
  expire();
  worked |= retire();
  const int64_t begin_us = step_clock_.now_us();
  admit();
  if (running_.empty()) {
    worked |= retire();  // an admission may have failed
    idle_since_us_ = 0;
    cache_->settle_all();
    publish(Status(), nullptr);
    return worked || loading_;
  }
  grow();
  const int64_t grown_us = step_clock_.now_us();
  const Status proposed = propose();
  const int64_t proposed_us = step_clock_.now_us();
  Flight& next = flights_[in_flight_ == &flights_[0] ? 1 : 0];
  plan(next);
  counts_.plan_us += grown_us - begin_us + step_clock_.now_us() - proposed_us;
  if (!next.plan.sequences.empty()) {
    run(next, proposed);
  } else if (in_flight_) {
    settle();  // all that runs ends with it
  }
  return true;
}

bool Engine::Loop::read_inbox() {
  inbox_.take(messages_);
  for (InboxMessage& message : messages_) apply(std::move(message));
  const bool any = !messages_.empty();
  messages_.clear();
  return any;
}

void Engine::Loop::apply(InboxMessage message) {
  if (message.kind == InboxMessage::Kind::kSubmit) {
    ++counts_.accepted;
    message.sequence->tenant = accounts_.enter(message.sequence->request.tenant);
    wait_for_slot(std::move(message.sequence));
    return;
  }
  Sequence* sequence = find(message.id);
  if (!sequence || sequence->ended()) return;
  if (message.kind == InboxMessage::Kind::kCancel) {
    sequence->end(FinishReason::kCancelled);
  } else {
    apply_finish(*sequence, message.last_index);
  }
  if (sequence->ended() && waiting_.find(message.id)) ended_.push_back(waiting_.take(*sequence));
}

void Engine::Loop::apply_finish(Sequence& sequence, int64_t last_index) {
  if (sequence.ended()) return;
  sequence.stop_limit = std::min(sequence.stop_limit, std::max<int64_t>(0, last_index + 1));
  if (sequence.answer_tokens() < sequence.stop_limit) return;
  sequence.tokens.resize(static_cast<size_t>(sequence.prompt_tokens + sequence.stop_limit));
  sequence.end(FinishReason::kStop);
}

Sequence* Engine::Loop::find(RequestId id) {
  for (auto& sequence : running_) {
    if (sequence->request.id == id) return sequence.get();
  }
  return waiting_.find(id);
}

Status Engine::Loop::propose() {
  if (!speculation_) return {};
  decoding_.clear();
  int64_t other_rows = 0;
  for (const auto& sequence : running_) {
    sequence->drafts.count = sequence->drafts.tested = 0;
    if (!takes_rows(*sequence)) continue;
    const int64_t rows = sequence->tokens_ahead() - sequence->reached();
    other_rows += rows;
    if (rows == 1) decoding_.push_back(sequence.get());
  }
  other_rows = std::min(other_rows, int64_t{options_.step_tokens}) - static_cast<int64_t>(decoding_.size());
  if (in_flight_) {
    speculation_->pass_over(decoding_, other_rows);
    return {};
  }
  DI_CHECK_OK(speculation_->propose(decoding_, other_rows, state(), *workspace_));
  for (Sequence* sequence : decoding_) make_room_for_drafts(*sequence);
  return {};
}

// Nobody is preempted for a draft.
void Engine::Loop::make_room_for_drafts(Sequence& sequence) {
  const int64_t tokens = static_cast<int64_t>(sequence.tokens.size());
  if (cache_->grow(sequence.cache, tokens + std::max(sequence.drafts.count, sequence.drafts.tested))) return;
  const int64_t room = static_cast<int64_t>(sequence.cache.lease.pages().size()) * model_.layout().page_tokens;
  sequence.drafts.count = static_cast<int32_t>(std::clamp<int64_t>(room - tokens, 0, sequence.drafts.count));
  sequence.drafts.tested = std::min(sequence.drafts.tested, static_cast<int32_t>(std::max<int64_t>(room - tokens, 0)));
}

void Engine::Loop::plan(Flight& flight) {
  plannable_.clear();
  for (const auto& sequence : running_) {
    if (!takes_rows(*sequence)) continue;
    const CachedSequence& cache = sequence->cache;
    by_slot_[static_cast<size_t>(cache.lease.slot())] = sequence.get();
    plannable_.push_back({.request = sequence->request.id,
                          .slot = cache.lease.slot(),
                          .tokens = sequence->tokens,
                          .computed = sequence->reached(),
                          .original_prompt_tokens = sequence->request.original_prompt_tokens,
                          .write_floor = cache.write_floor,
                          .window_floor = cache.window_floor,
                          .cut = cache.cut(),
                          .images = sequence->request.images,
                          .drafts = sequence->drafts.planned(),
                          .draw = sequence->draw,
                          .priority = sequence->request.priority,
                          .tenant = sequence->tenant,
                          .rank = sequence->rank});
  }
  const StepBudget budget{.step_tokens = options_.step_tokens,
                          .replay = replay_,
                          .hidden = model_.shape().hidden,
                          .ranks = static_cast<int32_t>(rank_loads_.size())};
  plan_step(plannable_, budget, shares_, flight.plan);
  if (options_.step_log && !plannable_.empty()) options_.step_log(step_log_line(plannable_, budget, flight.plan));
  flight.draws.clear();
  for (const SequenceRows& rows : flight.plan.sequences) {
    for (int32_t i = 0; i < rows.num_logits; ++i) flight.draws.push_back({by_slot_[static_cast<size_t>(rows.slot)], i});
  }
}

StateView Engine::Loop::state() const {
  const SequenceStore& store = std::as_const(*cache_).store();
  return {.states = store.states(),
          .pages = store.pages(),
          .page_table = store.page_table(),
          .table_stride = store.table_stride(),
          .draws = overlaps_ ? sampler_->results() : nullptr};
}

void Engine::Loop::note_ranks(const StepPlan& plan) {
  std::array<double, kMaxRanks> work{};
  for (const SequenceRows& rows : plan.sequences)
    work[static_cast<size_t>(rows.rank)] += static_cast<double>(work_of(rows.begin, rows.count)) / kRowWork;
  for (size_t r = 0; r < work.size(); ++r) counts_.ranks.work[r] += work[r];
  counts_.ranks.busiest += *std::max_element(work.begin(), work.end());
}

void Engine::Loop::publish(const Status& status, const StepPlan* ran) {
  if (ran) {
    ++counts_.steps;
    counts_.rows += ran->num_rows();
    if (rank_loads_.size() > 1) note_ranks(*ran);
  }
  counts_.waiting = static_cast<int32_t>(waiting_.size());
  counts_.running = static_cast<int32_t>(running_.size());
  const PagePool& pool = std::as_const(*cache_).store().pool();
  counts_.pages = pool.num_pages();
  counts_.free_pages = pool.num_free();
  counts_.leased_pages = pool.num_leased();
  counts_.cached_pages = pool.num_cached();
  counts_.prefix = cache_->stats();
  if (speculation_) counts_.speculation = speculation_->stats();
  const std::lock_guard lock(published_mutex_);
  published_ = counts_;
  if (ran) health_ = status;
}

}  // namespace deepinfer
