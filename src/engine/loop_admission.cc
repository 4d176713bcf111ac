#include "engine/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace deepinfer {

void Engine::Loop::wait_for_slot(std::unique_ptr<Sequence> sequence) {
  if (sequence->request.deadline_us > 0) waiting_deadline_us_ = std::min(waiting_deadline_us_, sequence->request.deadline_us);
  waiting_.push(std::move(sequence));
}

// Whoever is next waits for room, so that a large request is not overtaken for ever by small ones; only one that waits for a
// prefix which another is computing, or the store is read for, lets others pass.
void Engine::Loop::admit() {
  loading_ = cache_->loading() && !waiting_.empty();
  // Whoever waits for a load that is over must not be what keeps its owner from being asked.
  if (loading_) waiting_.for_each([&](Sequence& sequence) { cache_->poll_load(sequence.cache); });
  if (waiting_.empty() || cache_->store().num_free_slots() == 0) return;
  waiting_.begin_round();
  while (Sequence* next = waiting_.next(accounts_)) {
    const Opening opening = open(*next);
    if (next->ended()) {
      ended_.push_back(waiting_.take(*next));
    } else if (opening == Opening::kAwaitsPrefix || opening == Opening::kLoading) {
      loading_ |= opening == Opening::kLoading;
      waiting_.pass_over(*next);
    } else if (opening == Opening::kOpened) {
      running_.push_back(waiting_.take(*next));
    } else {
      return;
    }
  }
}

// Pages that running sequences may soon need, one each.
int64_t Engine::Loop::pages_to_reserve() const {
  return std::count_if(running_.begin(), running_.end(), [&](const auto& sequence) {
    const auto pages = static_cast<int64_t>(sequence->cache.lease.pages().size());
    return pages < std::as_const(*cache_).store().pages_for(sequence->prompt_tokens + sequence->answer_limit);
  });
}

double Engine::Loop::us_per_prompt_token() const {
  const StepTimes& prompts = counts_.times[static_cast<size_t>(StepKind::kPrefill)];
  return prompts.rows == 0 ? 0 : static_cast<double>(prompts.us) / static_cast<double>(prompts.rows);
}

Opening Engine::Loop::open(Sequence& sequence) {
  const auto opening = cache_->open({.tokens = sequence.tokens,
                                     .images = sequence.request.images,
                                     .tenant = sequence.request.tenant,
                                     .original_prompt_tokens = sequence.request.original_prompt_tokens,
                                     .retention = sequence.request.retention,
                                     .us_per_token = us_per_prompt_token(),
                                     .handed = sequence.transfer.in,
                                     .sink = sequence.transfer.out},
                                    pages_to_reserve(), sequence.cache);
  if (!opening) {
    // The device tells of a failed step to whoever waits first.
    if (in_flight_) in_flight_->status = opening.error();
    sequence.end(FinishReason::kError, opening.error().message);
    return Opening::kNoRoom;
  }
  if (*opening != Opening::kOpened) return *opening;
  sequence.transfer.in.reset();
  sequence.computed = sequence.cache.begin;
  sequence.enter(Phase::kPrefill, now_us());
  // Draft rings belong to no snapshot, and rows that stop early are not noted.
  sequence.drafts.least_noted = 1;
  sequence.drafts.noted_from = std::max(sequence.cache.begin, decoder_start(replay_, sequence.request.original_prompt_tokens));
  if (sequence.cache.noted_from >= 0) sequence.drafts.noted_from = sequence.cache.noted_from;
  // Counted at once, so that the next choice sees it.
  accounts_.charge(sequence.tenant, static_cast<int64_t>(sequence.tokens.size()) - sequence.computed);
  if (!std::exchange(sequence.started, true)) {
    if (rank_loads_.size() > 1) sequence.rank = choose_rank_of(sequence);
    sequence.verdict = sequence.cache.verdict;
    sequence.usage.cached_tokens = sequence.verdict->cached_tokens;
    sequence.usage.replayed_tokens = sequence.verdict->replayed_tokens;
    // Short answers never reallocate in a step; a limit of a whole context is not worth its memory.
    sequence.tokens.reserve(static_cast<size_t>(sequence.prompt_tokens + std::min<int64_t>(sequence.answer_limit, 4096)));
  }
  return Opening::kOpened;
}

int32_t Engine::Loop::choose_rank_of(const Sequence& sequence) {
  std::fill(rank_loads_.begin(), rank_loads_.end(), RankLoad());
  for (const auto& other : running_) {
    RankLoad& load = rank_loads_[static_cast<size_t>(other->rank)];
    const int64_t left = other->tokens_ahead() - other->reached();
    if (left > 1) load.add_prompt(other->reached(), left);
    load.kv += static_cast<int64_t>(other->cache.lease.pages().size());
    ++load.sequences;
  }
  return choose_rank(rank_loads_, static_cast<int64_t>(sequence.tokens.size()) - sequence.computed);
}

void Engine::Loop::grow() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    if (!takes_rows(sequence) || cache_->grow(sequence.cache, sequence.tokens_ahead())) {
      ++i;
      continue;
    }
    // What ends with the step in flight may leave enough; and nobody is thrown out of memory that is being written.
    if (in_flight_) {
      settle();
      i = 0;
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
  sequence->enter(Phase::kWaiting, now_us());
  ++sequence->trace.preempted;
  ++counts_.preempted;
  wait_for_slot(std::move(sequence));
}

}  // namespace deepinfer
