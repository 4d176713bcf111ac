// scheduler/scheduler.h - which rows run next: from the running sequences to a StepPlan.
//
// Decoding sequences come first with one row each, then their drafts, which get at most half of what is left while prompts
// wait; the rest of the token budget is shared among the prompts (scheduler/prompt_shares.h), cut into chunks anywhere. The
// order of work never changes a row's inputs, so any budget gives the same bytes. Each draft has a row of its own and every row
// of a verification yields logits: SequenceRows::num_logits - 1 drafts are verified.
//
// With ranks (StepBudget::ranks) the plan is made rank by rank in the same way. Each has its part of the rows, so that a step
// takes no longer when the prompts are all on one; and of ranks with prompts those behind much context get fewer rows, so that
// the work is equal (policy/ranks.h) and none waits long for another.
//
// Replay (kv_cache.md section 4): in mode `decoder` rows of the prompt before s = max(0, N - R) stop after the candidate
// layer, and the layers behind it see window keys from s on only, for the whole life of the sequence. N is the length of
// the original prompt, so a resumed sequence repeats exactly what the uninterrupted one did.
// Promise: pure; the vectors of `plan` and `shares` are reused, so a warm step allocates nothing.
// REQUIRES: budget.step_tokens >= running.size(), so that every decoding sequence moves in every step, and some prompt.
#pragma once

#include <cstdint>
#include <span>

#include "core/step_plan.h"
#include "policy/replay.h"
#include "scheduler/prompt_shares.h"

namespace deepinfer {

// A sequence that holds a slot and its pages.
struct RunningSequence {
  RequestId request = 0;
  SlotId slot = 0;
  std::span<const TokenId> tokens;  // prompt and what was generated
  Position computed = 0;            // tokens whose state is in slot and pages when the step runs; < tokens.size() without `draw`
  int64_t original_prompt_tokens = 0;
  Position write_floor = 0;   // pages before it are shared
  Position window_floor = 0;  // of the layers up to the candidate layer, after a replay
  Position cut = 0;           // a chunk must end here, 0 = nowhere
  std::span<const ImageSpan> images;
  std::span<const TokenId> drafts = {};  // of a decoding sequence, to be verified behind its last token
  int32_t draw = -1;                     // result of the step in flight that gives one more token, -1 = none
  int32_t priority = 0, tenant = 0;      // whose prompt comes first
  int32_t rank = 0;
};

struct StepBudget {
  int32_t step_tokens = 0;  // rows of one step
  ReplayRules replay;
  int32_t hidden = 0;  // width of image rows
  int32_t ranks = 1;
};

// `running` by admission; `shares` is memory for it, of no meaning between two calls.
void plan_step(std::span<const RunningSequence> running, const StepBudget& budget, PromptShares& shares, StepPlan& plan);

}  // namespace deepinfer
