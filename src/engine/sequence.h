// engine/sequence.h - one request inside the engine, from acceptance to its final event.
//
// tokens[0, computed) have their state in slot and pages; tokens[computed, size) run next. The answer is
// tokens[prompt_tokens, size). While a step is in flight, tokens[computed, launched) and one draw behind `tokens` are its work. A
// sequence runs while it holds a lease and waits before and, when it was thrown out for lack of
// pages, between; it has ended when `finish` is set, and the loop then frees its memory before it tells the handler.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/token_service.h"
#include "grammar/token_mask.h"
#include "kvcache/sequence_cache.h"
#include "policy/calibration.h"
#include "policy/draft_habit.h"
#include "scheduler/draft_control.h"
#include "scheduler/step_ahead.h"

namespace deepinfer {

// How often each token occurs, for the penalties: triples as the sample operation takes them.
class TokenCounts {
 public:
  void add_prompt(TokenId token) { ++triples_[find(token) + 2]; }
  void add_answer(TokenId token) { ++triples_[find(token) + 1]; }
  // Appends the triples as they are when `drafts` follow in the answer.
  void append_with(std::span<const TokenId> drafts, std::vector<int32_t>& out) const {
    const size_t begin = out.size();
    out.insert(out.end(), triples_.begin(), triples_.end());
    for (const TokenId token : drafts) {
      const auto known = index_.find(token);
      size_t at = known == index_.end() ? begin + triples_.size() : begin + known->second;
      while (at < out.size() && out[at] != token) at += 3;
      if (at == out.size()) out.insert(out.end(), {token, 0, 0});
      ++out[at + 1];
    }
  }

 private:
  size_t find(TokenId token) {
    const auto [entry, added] = index_.try_emplace(token, triples_.size());
    if (added) triples_.insert(triples_.end(), {token, 0, 0});
    return entry->second;
  }
  std::vector<int32_t> triples_;  // (token, count in the answer, count in the prompt)
  std::unordered_map<TokenId, size_t> index_;
};

// What speculation holds for a sequence between two steps.
struct Drafts {
  std::array<TokenId, kMaxDraft> tokens{};
  int32_t count = 0;         // to be verified in the next step
  Position noted_from = 0;   // the drafter has seen the rows from here on
  Position least_noted = 1;  // so many are needed for a draft
  int64_t blocks = 0;        // verified so far
  SurvivalHistory history{};
  DraftHabit habit;
  VerifiedBlock block;    // logits of the block at hand
  bool complete = false;  // it is verified whatever its confidence
  // For rejection: the row of the pass's logits that the first draft was drawn from, the next ones `row_stride` further on; and
  // how many of the drafts are tested. One more than `count` where a draft ends the answer or the block by what it is: the row
  // before it tests it, and no row behind is needed.
  int32_t first_row = 0, row_stride = 0;
  int32_t tested = 0;
  std::span<const TokenId> planned() const { return {tokens.data(), static_cast<size_t>(count)}; }
};

enum class Phase { kWaiting, kPrefill, kDecode };

struct Sequence {
  Request request;  // its prompt has moved to `tokens`
  EventHandler handler;
  PageTransfer transfer;
  std::vector<TokenId> tokens;
  int64_t prompt_tokens = 0;
  int64_t answer_limit = 0;                                  // kLength when reached
  int64_t stop_limit = std::numeric_limits<int64_t>::max();  // kStop when reached, set by finish()
  Position computed = 0;
  int32_t in_flight = 0;       // launched steps that hold rows of it and have not been settled: two at most
  Position launched = 0;       // of the last of them
  int32_t draw = -1;           // its result that will be the next token, -1 = none
  int32_t rank = 0;            // owns it from its first start on
  int32_t tenant = -1;         // in the loop\'s TokenAccounts
  bool awaits_prefix = false;  // the queue passes it over in this round
  Usage usage;                 // cached and replayed tokens of the first start
  bool started = false;
  TokenCounts counts;               // kept only when a penalty is set
  std::unique_ptr<TokenMask> mask;  // null = every token may come; its state is that of the answer so far
  bool masked = false;              // the mask holds from the next token on (with thinking: behind its end)
  bool mask_waits = false;          // it was not ready in the last step, whose row runs again
  bool awaits_forced = false;       // more tokens are sure than the step in flight draws
  CachedSequence cache;
  std::optional<PrefixVerdict> verdict;  // of the first start
  Phase phase = Phase::kWaiting;
  int64_t phase_since_us = 0;
  RequestTrace trace;
  Drafts drafts;
  FinishReason finish = FinishReason::kNone;
  std::string error;

  int64_t answer_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
  // What the next step builds on.
  Position reached() const { return in_flight > 0 ? launched : computed; }
  int64_t tokens_ahead() const { return static_cast<int64_t>(tokens.size()) + (draw >= 0); }
  bool ended() const { return finish != FinishReason::kNone; }
  // What passed since the last call belongs to the phase that ends.
  void enter(Phase next, int64_t now_us) {
    int64_t& spent = phase == Phase::kWaiting ? trace.waiting_us : phase == Phase::kPrefill ? trace.prefill_us : trace.decode_us;
    spent += now_us - std::exchange(phase_since_us, now_us);
    phase = next;
  }
  void end(FinishReason reason, std::string why = {}) {
    if (ended()) return;
    finish = reason;
    error = std::move(why);
  }
};

// Whether the next step has rows of it; what has ended or surely ends with the step in flight has none.
inline bool takes_rows(const Sequence& sequence) {
  if (sequence.in_flight == 0) return !sequence.ended();
  return !sequence.awaits_forced && goes_on({.ended = sequence.ended(),
                                             .draws = sequence.draw >= 0,
                                             .answer_tokens = sequence.answer_tokens(),
                                             .most_tokens = std::min(sequence.answer_limit, sequence.stop_limit)});
}

// Whether any draw of this request looks at token counts.
inline bool has_penalties(const SamplingParams& sampling) {
  return sampling.frequency_penalty != 0.0f || sampling.presence_penalty != 0.0f || sampling.repetition_penalty != 1.0f;
}

}  // namespace deepinfer
