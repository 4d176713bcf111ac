#include "engine/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

constexpr size_t kMostBesideForced = 5;  // sequences on a processor among which text without a choice gets rows of its own

}  // namespace

// Rows of a sequence that has ended meanwhile were computed for nothing.
void Engine::Loop::commit(const StepPlan& plan) {
  size_t next_logits = 0;
  StepOutcome outcome{.rows = plan.num_rows(), .verify_us = static_cast<double>(step_us_)};
  for (const SequenceRows& rows : plan.sequences) {
    Sequence& sequence = *by_slot_[static_cast<size_t>(rows.slot)];
    const int32_t drafts = std::max(0, rows.num_logits - 1);
    const bool decodes = is_decode(rows);
    if (!sequence.ended()) ++(decodes ? sequence.trace.decode_steps : sequence.trace.prefill_steps);
    const int32_t emitted = sequence.ended() ? 0 : commit_rows(sequence, rows, next_logits);
    if (decodes) {
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
  int32_t accepted = 0, emitted = 0;
  for (int32_t i = 0; i < rows.num_logits && !sequence.ended(); ++i) {
    if (!mask_is_ready(sequence, first_logits + static_cast<size_t>(i))) break;
    const SampleResult& result = sampler_->result(first_logits + static_cast<size_t>(i));
    const bool follows = i < verified && result.token == sequence.drafts.tokens[static_cast<size_t>(i)];
    commit_token(sequence, result);
    ++emitted;
    accepted += follows;
    if (!follows || sequence.ended()) break;
    ++sequence.computed;
    // The handler may have ended the answer with this token: the next one is not shown then.
    read_inbox();
  }
  append_forced(sequence);
  if (verified > 0 && !sequence.mask_waits) speculation_->note_verified(sequence, verified, accepted);
  // A call of finish() may have cut the answer.
  sequence.computed = std::min(sequence.computed, static_cast<Position>(sequence.tokens.size()));
  cache_->step_done(sequence.cache, sequence.tokens, sequence.request.images, sequence.computed);
  return emitted;
}

// Where it is not, the row runs again in the next step: nothing was drawn from it.
bool Engine::Loop::mask_is_ready(Sequence& sequence, size_t row) {
  const MaskFill state = sampler_->mask_state(row);
  sequence.mask_waits = state == MaskFill::kUnfinished;
  if (sequence.mask_waits) --sequence.computed;
  if (state == MaskFill::kFailed) {
    sequence.end(
        FinishReason::kError,
        fmt::format("which tokens fit the constraint at token {} of the answer takes more time or memory than one answer "
                    "may have: simplify it",
                    sequence.answer_tokens()));
  }
  return state == MaskFill::kReady;
}

// Only what is committed moves the constraint, so that its state is a function of the answer.
bool Engine::Loop::follow_constraint(Sequence& sequence, TokenId token) {
  if (!sequence.mask) return true;
  if (sequence.masked) return sequence.mask->accept(token);
  sequence.masked = token == sequence.request.constraint.begins_after;
  return true;
}

// Text that the constraint leaves no choice about needs no draws: its tokens are part of the answer at once, and get their rows
// together in the next step. While a step in flight still draws the first of them, the sequence has no part in the one behind.
// Beside many others they are drawn all the same: a processor's step of nine rows costs a third more than one of eight
// (docs/deep-dives/grammar.md).
void Engine::Loop::append_forced(Sequence& sequence) {
  const auto forced = [&] { return sequence.masked && !sequence.ended() ? sequence.mask->forced() : -1; };
  if (!sequence.masked || sequence.mask_waits) return;
  if (!overlaps_ && running_.size() > kMostBesideForced) return;
  sequence.awaits_forced = sequence.in_flight > 0 && forced() >= 0;
  if (sequence.in_flight > 0) return;
  for (TokenId token; (token = forced()) >= 0; ++counts_.forced_tokens) {
    // What a draw of the only token allowed gives: its probability is 1.
    const int32_t num_top = std::clamp(sequence.request.sampling.num_logprobs, 0, 1);
    commit_token(sequence, {.token = token, .logprob = 0, .num_top = num_top, .top_tokens = {token}, .top_logprobs = {}});
    read_inbox();
  }
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
  if (event.index == 0) event.report = RequestReport{sequence.verdict, {}};
  if (request.sampling.num_logprobs >= 0) {
    event.logprob = TokenLogprob{result.token, result.logprob};
    for (int32_t i = 0; i < result.num_top; ++i) event.top_logprobs.push_back({result.top_tokens[i], result.top_logprobs[i]});
  }
  sequence.tokens.push_back(result.token);
  if (sequence.phase != Phase::kDecode) sequence.enter(Phase::kDecode, now_us());
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

// What ended while it waited.
void Engine::Loop::retire_waiting() {
  decoding_.clear();
  waiting_.for_each([&](Sequence& sequence) {
    if (sequence.ended()) decoding_.push_back(&sequence);
  });
  for (const Sequence* sequence : decoding_) ended_.push_back(waiting_.take(*sequence));
  decoding_.clear();
}

// Whose rows are in flight ends when they have come down.
bool Engine::Loop::retire() {
  for (auto& sequence : running_) {
    if (sequence->ended() && sequence->in_flight == 0) ended_.push_back(std::move(sequence));
  }
  std::erase(running_, nullptr);
  const bool any = !ended_.empty();
  for (auto& sequence : ended_) deliver_end(std::move(sequence));
  ended_.clear();
  if (any && running_.empty()) {
    const SequenceStore& store = cache_->store();
    DI_CHECK(counts_.accepted - counts_.ended == static_cast<int64_t>(waiting_.size()));
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
  sequence->enter(Phase::kWaiting, now_us());
  event.report = RequestReport{sequence->verdict, sequence->trace};
  ++counts_.ended;
  counts_.prompt_tokens += event.usage.prompt_tokens;
  counts_.completion_tokens += event.usage.completion_tokens;
  // Freed before the handler hears of it: whoever waits for the end finds the room.
  const EventHandler handler = std::move(sequence->handler);
  cache_->finish_sending(sequence->cache, {.sink = sequence->transfer.out.get(),
                                           .tokens = sequence->tokens,
                                           .original_prompt_tokens = sequence->request.original_prompt_tokens,
                                           .noted_from = speculation_ ? sequence->drafts.noted_from : sequence->computed,
                                           .good = event.finish == FinishReason::kLength});
  cache_->close(sequence->cache);
  if (sequence->tenant >= 0) accounts_.leave(sequence->tenant);
  sequence.reset();
  num_inside_.fetch_sub(1);
  handler(event);
}

}  // namespace deepinfer
