#include "engine/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace deepinfer {

bool Engine::Loop::step() {
  const bool worked = turn();
  note_progress();
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
    publish(Status(), false);
    return worked || loading_;
  }
  grow();
  const int64_t grown_us = step_clock_.now_us();
  Status status = propose();
  const int64_t proposed_us = step_clock_.now_us();
  plan();
  counts_.plan_us += grown_us - begin_us + step_clock_.now_us() - proposed_us;
  if (status) status = run();
  read_inbox();
  expire();
  if (status) {
    commit();
  } else {
    fail_running(status.error());
  }
  retire();
  cache_->settle(waited_, status.ok());
  publish(status, true);
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
  for (const auto& sequence : running_) {
    sequence->drafts.count = 0;
    if (sequence->computed + 1 == static_cast<Position>(sequence->tokens.size())) decoding_.push_back(sequence.get());
  }
  int64_t other_rows = 0;
  for (const auto& sequence : running_) other_rows += static_cast<int64_t>(sequence->tokens.size()) - sequence->computed;
  const int64_t decoding = static_cast<int64_t>(decoding_.size());
  other_rows = std::min(other_rows, int64_t{options_.step_tokens}) - decoding;
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

void Engine::Loop::plan() {
  plannable_.clear();
  for (const auto& sequence : running_) {
    const CachedSequence& cache = sequence->cache;
    by_slot_[static_cast<size_t>(cache.lease.slot())] = sequence.get();
    plannable_.push_back({.request = sequence->request.id,
                          .slot = cache.lease.slot(),
                          .tokens = sequence->tokens,
                          .computed = sequence->computed,
                          .original_prompt_tokens = sequence->request.original_prompt_tokens,
                          .write_floor = cache.write_floor,
                          .window_floor = cache.window_floor,
                          .cut = cache.cut(),
                          .images = sequence->request.images,
                          .drafts = sequence->drafts.planned()});
  }
  const StepBudget budget{.step_tokens = options_.step_tokens, .replay = replay_, .hidden = model_.shape().hidden};
  plan_step(plannable_, budget, plan_);
  if (options_.step_log) options_.step_log(step_log_line(plannable_, budget, plan_));
  logit_rows_.clear();
  for (const SequenceRows& rows : plan_.sequences) {
    for (int32_t i = 0; i < rows.num_logits; ++i) logit_rows_.push_back({by_slot_[static_cast<size_t>(rows.slot)], i});
  }
}

StateView Engine::Loop::state() const {
  const SequenceStore& store = std::as_const(*cache_).store();
  return {
      .states = store.states(), .pages = store.pages(), .page_table = store.page_table(), .table_stride = store.table_stride()};
}

Status Engine::Loop::run() {
  const int64_t begin_us = step_clock_.now_us();
  sampler_->begin_masks(logit_rows_);
  Status status = model_.forward(plan_, state(), *workspace_);
  if (status && speculation_) status = speculation_->note_rows(state(), *workspace_);
  if (status && !logit_rows_.empty()) {
    const float* draft_logits = speculation_ ? speculation_->draft_logits(*workspace_) : nullptr;
    status = sampler_->enqueue(logit_rows_, workspace_->logits(), draft_logits);
  } else {
    sampler_->drop_masks();
  }
  if (status) {
    for (const SequenceRows& rows : plan_.sequences) {
      cache_->step_enqueued(by_slot_[static_cast<size_t>(rows.slot)]->cache, rows.begin, rows.begin + rows.count);
    }
  }
  // Also after a failure: slots and pages are given back only when nothing can touch them any more.
  waited_ = device_.record();
  const Status done = device_.wait(waited_);
  note_times(begin_us, step_clock_.now_us());
  return status ? done : status;
}

void Engine::Loop::note_times(int64_t begin_us, int64_t end_us) {
  step_us_ = end_us - begin_us;
  // A draft pass computes, too.
  const int64_t draft_us = speculation_ ? speculation_->pass_us() : 0;
  if (idle_since_us_ > 0) counts_.between_us += std::max<int64_t>(0, begin_us - idle_since_us_ - draft_us);
  idle_since_us_ = end_us;
  const auto decodes = std::count_if(plan_.sequences.begin(), plan_.sequences.end(), is_decode);
  const StepKind kind = decodes == 0                                              ? StepKind::kPrefill
                        : decodes == static_cast<int64_t>(plan_.sequences.size()) ? StepKind::kDecode
                                                                                  : StepKind::kMixed;
  StepTimes& times = counts_.times[static_cast<size_t>(kind)];
  ++times.steps;
  times.rows += plan_.num_rows();
  times.us += step_us_;
}

void Engine::Loop::publish(const Status& status, bool ran) {
  if (ran) {
    ++counts_.steps;
    counts_.rows += plan_.num_rows();
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
