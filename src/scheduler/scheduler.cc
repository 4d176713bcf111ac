#include "scheduler/scheduler.h"

#include <algorithm>
#include <array>

#include "policy/ranks.h"

namespace deepinfer {
namespace {

int64_t num_pending(const RunningSequence& sequence) {
  return static_cast<int64_t>(sequence.tokens.size()) + (sequence.draw >= 0) - sequence.computed;
}

// Of a prompt, in one step.
int64_t chunk_wanted(const RunningSequence& sequence) {
  const int64_t pending = num_pending(sequence);
  return sequence.cut > sequence.computed ? std::min(pending, sequence.cut - sequence.computed) : pending;
}

// The part of each image that lies in the rows just added.
void add_image_rows(const RunningSequence& sequence, const SequenceRows& rows, int32_t hidden, StepPlan& plan) {
  for (const ImageSpan& image : sequence.images) {
    const Position begin = std::max(image.begin, rows.begin);
    const Position end = std::min<Position>(image.begin + image.rows, rows.begin + rows.count);
    if (begin >= end) continue;
    plan.images.push_back({.token_begin = rows.first_token + static_cast<int32_t>(begin - rows.begin),
                           .rows = static_cast<int32_t>(end - begin),
                           .embeddings = image.embeddings.data() + (begin - image.begin) * hidden});
  }
}

// `count` of the pending tokens and `drafts` behind them.
void add_rows(const RunningSequence& sequence, int32_t count, int32_t drafts, const StepBudget& budget, StepPlan& plan) {
  SequenceRows rows;
  rows.request = sequence.request;
  rows.slot = sequence.slot;
  rows.begin = sequence.computed;
  rows.count = count + drafts;
  rows.first_token = plan.num_rows();
  rows.decoder_begin = rows.window_floor = decoder_start(budget.replay, sequence.original_prompt_tokens);
  // In mode off the layers behind the candidate layer restart where the others do.
  rows.window_floor = std::max(rows.window_floor, sequence.window_floor);
  rows.encoder_window_floor = sequence.window_floor;
  rows.write_floor = sequence.write_floor;
  rows.prompt_tokens = sequence.original_prompt_tokens;
  rows.num_logits = count == num_pending(sequence) ? 1 + drafts : 0;
  rows.rank = sequence.rank;
  const auto known = std::min(static_cast<size_t>(count), sequence.tokens.size() - static_cast<size_t>(rows.begin));
  const auto tokens = sequence.tokens.subspan(static_cast<size_t>(rows.begin), known);
  plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
  if (known < static_cast<size_t>(count)) plan.tokens.push_back(token_of_draw(sequence.draw));
  plan.tokens.insert(plan.tokens.end(), sequence.drafts.begin(), sequence.drafts.begin() + drafts);
  plan.sequences.push_back(rows);
  add_image_rows(sequence, rows, budget.hidden, plan);
}

// What a rank has to do, and how many rows of the step are its own.
struct RankRows {
  int64_t sequences = 0, prompts = 0;
  int64_t wanted = 0, work = 0;  // of its prompts; work / wanted is what one of their rows is worth
  int64_t rows = 0;
};
using RanksRows = std::array<RankRows, kMaxRanks>;

// Every sequence can have a row of its rank's.
void divide_among_ranks(std::span<const RunningSequence> running, const StepBudget& budget, RanksRows& ranks) {
  const int64_t most = budget.step_tokens / budget.ranks;
  for (const RunningSequence& sequence : running) {
    RankRows& rank = ranks[static_cast<size_t>(sequence.rank)];
    ++rank.sequences;
    if (num_pending(sequence) <= 1) continue;
    const int64_t wanted = std::min(chunk_wanted(sequence), most);
    ++rank.prompts, rank.wanted += wanted, rank.work += work_of(sequence.computed, wanted);
  }
  int64_t least = 0;  // worth of a row on the rank where it is worth least
  for (const RankRows& rank : ranks) {
    if (rank.wanted > 0 && (least == 0 || rank.work / rank.wanted < least)) least = rank.work / rank.wanted;
  }
  for (RankRows& rank : ranks) {
    const int64_t decoding = rank.sequences - rank.prompts;
    const int64_t left = std::max<int64_t>(most - decoding, rank.prompts);
    rank.rows = decoding + (rank.wanted > 0 ? std::max(left * least / (rank.work / rank.wanted), rank.prompts) : left);
  }
}

// The sequences of one rank, which may have `rows`.
void plan_rank(std::span<const RunningSequence> running, int32_t rank, int64_t rows, const StepBudget& budget,
               PromptShares& shares, StepPlan& plan) {
  shares.clear();
  int64_t prompts = 0, decoding = 0;
  for (const RunningSequence& sequence : running) {
    if (sequence.rank != rank) continue;
    if (num_pending(sequence) <= 1) {
      ++decoding;
      continue;
    }
    shares.add({.wanted = chunk_wanted(sequence), .priority = sequence.priority, .tenant = sequence.tenant});
    ++prompts;
  }
  int64_t left = std::max<int64_t>(0, rows - decoding);
  // Every prompt can have a row.
  int64_t for_drafts = prompts > 0 ? std::clamp<int64_t>(left - prompts, 0, left / 2) : left;
  for (const RunningSequence& sequence : running) {
    if (sequence.rank != rank || num_pending(sequence) != 1) continue;
    const int64_t drafts = std::min<int64_t>(for_drafts, static_cast<int64_t>(sequence.drafts.size()));
    add_rows(sequence, 1, static_cast<int32_t>(drafts), budget, plan);
    for_drafts -= drafts, left -= drafts;
  }
  shares.divide(left);
  size_t prompt = 0;
  for (const RunningSequence& sequence : running) {
    if (sequence.rank != rank || num_pending(sequence) <= 1) continue;
    const auto count = static_cast<int32_t>(shares.rows(prompt++));
    if (count > 0) add_rows(sequence, count, 0, budget, plan);
  }
}

}  // namespace

void plan_step(std::span<const RunningSequence> running, const StepBudget& budget, PromptShares& shares, StepPlan& plan) {
  plan.tokens.clear();
  plan.sequences.clear();
  plan.images.clear();
  if (budget.ranks <= 1) return plan_rank(running, 0, budget.step_tokens, budget, shares, plan);
  RanksRows ranks{};
  divide_among_ranks(running, budget, ranks);
  for (int32_t rank = 0; rank < budget.ranks; ++rank)
    plan_rank(running, rank, ranks[static_cast<size_t>(rank)].rows, budget, shares, plan);
}

}  // namespace deepinfer
