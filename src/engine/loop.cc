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

// Ends what has run out of time.
void Engine::Loop::expire() {
  if (!options_.clock) return;
  const int64_t now = options_.clock->now_us();
  for (auto* group : {&running_, &waiting_}) {
    for (auto& sequence : *group) {
      if (sequence->request.deadline_us > 0 && sequence->request.deadline_us <= now)
        sequence->end(FinishReason::kDeadline, "the deadline of the request passed");
    }
  }
}

bool Engine::Loop::turn() {
  bool worked = read_inbox();
  expire();
  worked |= retire();
  admit();
  if (running_.empty()) {
    worked |= retire();  // an admission may have failed
    publish(Status(), false);
    return worked;
  }
  grow();
  Status status = propose();
  plan();
  if (status) status = run();
  read_inbox();
  expire();
  if (status) {
    commit();
  } else {
    fail_running(status.error());
  }
  retire();
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
    enqueue_waiting(std::move(message.sequence));
    return;
  }
  Sequence* sequence = find(message.id);
  if (!sequence) return;
  if (message.kind == InboxMessage::Kind::kCancel) {
    sequence->end(FinishReason::kCancelled);
  } else {
    apply_finish(*sequence, message.last_index);
  }
}

void Engine::Loop::enqueue_waiting(std::unique_ptr<Sequence> sequence) {
  const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), sequence, [](const auto& a, const auto& b) {
    return a->request.priority != b->request.priority ? a->request.priority > b->request.priority : a->request.id < b->request.id;
  });
  waiting_.insert(place, std::move(sequence));
}

void Engine::Loop::apply_finish(Sequence& sequence, int64_t last_index) {
  if (sequence.ended()) return;
  sequence.stop_limit = std::min(sequence.stop_limit, std::max<int64_t>(0, last_index + 1));
  if (sequence.answer_tokens() < sequence.stop_limit) return;
  sequence.tokens.resize(static_cast<size_t>(sequence.prompt_tokens + sequence.stop_limit));
  sequence.end(FinishReason::kStop);
}

Sequence* Engine::Loop::find(RequestId id) {
  for (auto* group : {&running_, &waiting_}) {
    for (auto& sequence : *group) {
      if (sequence->request.id == id) return sequence.get();
    }
  }
  return nullptr;
}

// Index of the one of the highest priority whose tenant had the fewest tokens, then the oldest; -1 = nobody may start.
int64_t Engine::Loop::next_waiting() const {
  int64_t best = -1;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Sequence* waiting = waiting_[i].get();
    if (!waiting || waiting->ended() || waiting->awaits_prefix) continue;
    const Sequence* leader = best < 0 ? nullptr : waiting_[static_cast<size_t>(best)].get();
    if (leader && waiting->request.priority < leader->request.priority) break;
    if (!leader || accounts_.tokens(waiting->tenant) < accounts_.tokens(leader->tenant)) best = static_cast<int64_t>(i);
  }
  return best;
}

// Whoever is next waits for room, so that a large request is not overtaken for ever by small ones; only one that waits for a
// prefix which another is computing lets others pass.
void Engine::Loop::admit() {
  if (cache_->store().num_free_slots() == 0) return;
  for (const auto& waiting : waiting_) waiting->awaits_prefix = false;
  for (int64_t i = next_waiting(); i >= 0; i = next_waiting()) {
    auto& next = waiting_[static_cast<size_t>(i)];
    const Opening opening = open(*next);
    if (opening == Opening::kNoRoom) break;
    next->awaits_prefix = opening == Opening::kAwaitsPrefix;
    if (opening == Opening::kOpened) running_.push_back(std::move(next));
  }
  std::erase(waiting_, nullptr);
}

// Pages that running sequences may soon need, one each.
int64_t Engine::Loop::pages_to_reserve() const {
  return std::count_if(running_.begin(), running_.end(), [&](const auto& sequence) {
    const auto pages = static_cast<int64_t>(sequence->cache.lease.pages().size());
    return pages < std::as_const(*cache_).store().pages_for(sequence->prompt_tokens + sequence->answer_limit);
  });
}

Opening Engine::Loop::open(Sequence& sequence) {
  const auto opening = cache_->open({.tokens = sequence.tokens,
                                     .images = sequence.request.images,
                                     .tenant = sequence.request.tenant,
                                     .original_prompt_tokens = sequence.request.original_prompt_tokens},
                                    pages_to_reserve(), sequence.cache);
  if (!opening) {
    sequence.end(FinishReason::kError, opening.error().message);
    return Opening::kAwaitsPrefix;
  }
  if (*opening != Opening::kOpened) return *opening;
  sequence.computed = sequence.cache.begin;
  // Draft rings belong to no snapshot, and rows that stop early are not noted.
  sequence.drafts.least_noted = 1;
  sequence.drafts.noted_from = std::max(sequence.cache.begin, decoder_start(replay_, sequence.request.original_prompt_tokens));
  // Counted at once, so that the next choice sees it.
  accounts_.charge(sequence.tenant, static_cast<int64_t>(sequence.tokens.size()) - sequence.computed);
  if (!std::exchange(sequence.started, true)) {
    sequence.usage.cached_tokens = sequence.cache.cached_tokens;
    sequence.usage.replayed_tokens = sequence.cache.replayed_tokens;
    // Short answers never reallocate in a step; a limit of a whole context is not worth its memory.
    sequence.tokens.reserve(static_cast<size_t>(sequence.prompt_tokens + std::min<int64_t>(sequence.answer_limit, 4096)));
  }
  return Opening::kOpened;
}

void Engine::Loop::grow() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    if (cache_->grow(sequence.cache, static_cast<int64_t>(sequence.tokens.size()))) {
      ++i;
      continue;
    }
    candidates_.clear();
    for (const auto& running : running_) candidates_.push_back({running->request.priority, running->request.id});
    const size_t victim = choose_victim(candidates_);
    preempt(victim);
    if (victim < i) --i;
  }
}

// Its published pages stay for the resumption as long as nobody else needs them.
void Engine::Loop::preempt(size_t index) {
  std::unique_ptr<Sequence> sequence = std::move(running_[index]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  cache_->close(sequence->cache);
  sequence->computed = 0;
  ++counts_.preempted;
  enqueue_waiting(std::move(sequence));
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
  if (cache_->grow(sequence.cache, tokens + sequence.drafts.count)) return;
  const int64_t room = static_cast<int64_t>(sequence.cache.lease.pages().size()) * model_.layout().page_tokens;
  sequence.drafts.count = static_cast<int32_t>(std::clamp<int64_t>(room - tokens, 0, sequence.drafts.count));
}

void Engine::Loop::plan() {
  plannable_.clear();
  for (const auto& sequence : running_) {
    const CachedSequence& cache = sequence->cache;
    by_slot_[static_cast<size_t>(cache.lease.slot())] = sequence.get();
    plannable_.push_back({.slot = cache.lease.slot(),
                          .tokens = sequence->tokens,
                          .computed = sequence->computed,
                          .original_prompt_tokens = sequence->request.original_prompt_tokens,
                          .write_floor = cache.write_floor,
                          .window_floor = cache.window_floor,
                          .cut = cache.cut(),
                          .images = sequence->request.images,
                          .drafts = sequence->drafts.planned()});
  }
  plan_step(plannable_, {.step_tokens = options_.step_tokens, .replay = replay_, .hidden = model_.shape().hidden}, plan_);
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
    status = sampler_->enqueue(logit_rows_, workspace_->logits());
  } else {
    sampler_->drop_masks();
  }
  if (status) {
    for (const SequenceRows& rows : plan_.sequences) {
      cache_->step_enqueued(by_slot_[static_cast<size_t>(rows.slot)]->cache, rows.begin, rows.begin + rows.count);
    }
  }
  // Also after a failure: slots and pages are given back only when nothing can touch them any more.
  const Status done = device_.wait(device_.record());
  step_us_ = step_clock_.now_us() - begin_us;
  return status ? done : status;
}

void Engine::Loop::commit() {
  size_t next_logits = 0;
  StepOutcome outcome{.rows = plan_.num_rows(), .verify_us = static_cast<double>(step_us_)};
  for (const SequenceRows& rows : plan_.sequences) {
    Sequence& sequence = *by_slot_[static_cast<size_t>(rows.slot)];
    const int32_t drafts = std::max(0, rows.num_logits - 1);
    const int32_t emitted = sequence.ended() ? 0 : commit_rows(sequence, rows, next_logits);
    if (rows.count - drafts == 1 && rows.num_logits > 0) {
      ++outcome.sequences;
      outcome.drafts += drafts;
      outcome.emitted += emitted;
    }
    next_logits += static_cast<size_t>(rows.num_logits);
  }
  if (speculation_) speculation_->note_step(outcome);
}

// The row behind a draft counts when the draft is the token that was drawn for its place; every token is the one drawn from a
// row whose inputs were all accepted, so it is the token of a run without drafts.
// Gives the number of tokens drawn for the answer.
int32_t Engine::Loop::commit_rows(Sequence& sequence, const SequenceRows& rows, size_t first_logits) {
  const int32_t verified = std::max(0, rows.num_logits - 1);
  sequence.computed += rows.count - verified;
  int32_t accepted = 0;
  for (int32_t i = 0; i < rows.num_logits && !sequence.ended(); ++i) {
    const SampleResult& result = sampler_->result(first_logits + static_cast<size_t>(i));
    const bool follows = i < verified && result.token == sequence.drafts.tokens[static_cast<size_t>(i)];
    commit_token(sequence, result);
    accepted += follows;
    if (!follows || sequence.ended()) break;
    ++sequence.computed;
    // The handler may have ended the answer with this token: the next one is not shown then.
    read_inbox();
  }
  if (verified > 0) speculation_->note_verified(sequence, verified, accepted);
  // A call of finish() may have cut the answer.
  sequence.computed = std::min(sequence.computed, static_cast<Position>(sequence.tokens.size()));
  cache_->step_done(sequence.cache, sequence.tokens, sequence.request.images, sequence.computed);
  return rows.num_logits > 0 ? 1 + accepted : 0;
}

// Only what is committed moves the constraint, so that its state is a function of the answer.
bool Engine::Loop::follow_constraint(Sequence& sequence, TokenId token) {
  if (!sequence.mask) return true;
  if (sequence.masked) return sequence.mask->accept(token);
  sequence.masked = token == sequence.request.constraint.begins_after;
  return true;
}

void Engine::Loop::commit_token(Sequence& sequence, const SampleResult& result) {
  const Request& request = sequence.request;
  if (result.token < 0 && sequence.masked) {
    return sequence.end(FinishReason::kError,
                        fmt::format("no token fits the constraint at token {} of the answer", sequence.answer_tokens()));
  }
  if (result.token < 0) {
    return sequence.end(FinishReason::kError,
                        fmt::format("the model gave no finite logit for token {} of the answer", sequence.answer_tokens()));
  }
  if (std::find(request.stop_ids.begin(), request.stop_ids.end(), result.token) != request.stop_ids.end()) {
    return sequence.end(FinishReason::kStop);
  }
  if (!follow_constraint(sequence, result.token)) {
    return sequence.end(FinishReason::kError, fmt::format("token {} does not fit the constraint", result.token));
  }
  Event event;
  event.request = request.id;
  event.index = sequence.answer_tokens();
  event.token = result.token;
  event.usage.cached_tokens = sequence.usage.cached_tokens;
  if (request.sampling.num_logprobs >= 0) {
    event.logprob = TokenLogprob{result.token, result.logprob};
    for (int32_t i = 0; i < result.num_top; ++i) event.top_logprobs.push_back({result.top_tokens[i], result.top_logprobs[i]});
  }
  sequence.tokens.push_back(result.token);
  accounts_.charge(sequence.tenant, 1);
  if (has_penalties(request.sampling)) sequence.counts.add_answer(result.token);
  if (sequence.answer_tokens() >= sequence.stop_limit) {
    sequence.end(FinishReason::kStop);
  } else if (sequence.answer_tokens() >= sequence.answer_limit) {
    sequence.end(FinishReason::kLength);
  }
  sequence.handler(event);
}

void Engine::Loop::fail_running(const Error& error) {
  for (auto& sequence : running_) sequence->end(FinishReason::kError, "the step failed: " + error.message);
}

bool Engine::Loop::retire() {
  for (auto* group : {&running_, &waiting_}) {
    for (auto& sequence : *group) {
      if (sequence->ended()) ended_.push_back(std::move(sequence));
    }
    std::erase(*group, nullptr);
  }
  const bool any = !ended_.empty();
  for (auto& sequence : ended_) deliver_end(std::move(sequence));
  ended_.clear();
  if (any && running_.empty()) {
    const SequenceStore& store = cache_->store();
    DI_CHECK(store.pool().balanced() && store.pool().num_leased() == 0 && store.num_free_slots() == options_.max_batch);
  }
  return any;
}

void Engine::Loop::deliver_end(std::unique_ptr<Sequence> sequence) {
  Event event;
  event.request = sequence->request.id;
  event.index = sequence->answer_tokens();
  event.finish = sequence->finish;
  event.error = std::move(sequence->error);
  event.usage = sequence->usage;
  event.usage.prompt_tokens = sequence->prompt_tokens;
  event.usage.completion_tokens = sequence->answer_tokens();
  // A call of finish() may have cut accepted drafts off.
  event.usage.accepted_tokens = std::min(event.usage.accepted_tokens, event.usage.completion_tokens);
  ++counts_.ended;
  counts_.prompt_tokens += event.usage.prompt_tokens;
  counts_.completion_tokens += event.usage.completion_tokens;
  // Freed before the handler hears of it: whoever waits for the end finds the room.
  const EventHandler handler = std::move(sequence->handler);
  cache_->close(sequence->cache);
  if (sequence->tenant >= 0) accounts_.leave(sequence->tenant);
  sequence.reset();
  num_inside_.fetch_sub(1);
  handler(event);
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
