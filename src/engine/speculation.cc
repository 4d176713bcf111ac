#include "engine/speculation.h"

#include <algorithm>
#include <utility>

#include "engine/sampler.h"

namespace deepinfer {

Speculation::Speculation(Device& device, const Drafter& drafter, const SpeculationOptions& options, int32_t width,
                         int32_t max_batch)
    : device_(device),
      drafter_(drafter),
      options_(options),
      width_(width),
      control_({.mode = options.mode,
                .schedule = options.schedule,
                .width = width,
                .lag = options.lag,
                .temperatures = options.temperatures}) {
  const size_t batch = static_cast<size_t>(max_batch), draws = batch * static_cast<size_t>(drafter.width());
  members_.reserve(batch);
  sequences_.reserve(batch);
  blocks_.reserve(batch);
  usable_.reserve(batch);
  draws_.reserve(draws);
  results_.resize(draws);
  confidence_.resize(draws);
}

std::unique_ptr<Speculation> Speculation::create(Device& device, const LanguageModel& model, const SpeculationOptions& options,
                                                 int32_t max_batch) {
  const Drafter* drafter = options.drafter ? options.drafter : model.drafter();
  if (!drafter || options.mode == SpeculationMode::kOff) return nullptr;
  const int32_t width = std::min({options.max_draft, drafter->width(), kMaxDraft});
  if (width <= 0) return nullptr;
  return std::unique_ptr<Speculation>(new Speculation(device, *drafter, options, width, max_batch));
}

Status Speculation::check(const Workspace& workspace) const {
  if (!rejects() || draft_logits(workspace)) return {};
  return unsupported("drafts can be verified by rejection only if the drafter keeps their logits, which this one does not");
}

Status Speculation::probe(const LanguageModel& model, const StateView& state, Workspace& workspace, int32_t max_rows) {
  constexpr int64_t kPatienceUs = 100'000;
  constexpr int kRepeats = 3;
  const int64_t begin = clock_.now_us();
  StepPlan plan;
  // The first run touches memory for the first time and counts for nothing.
  for (const int32_t rows : {1, 1, 1 + width_, 1 + width_ / 2, 16}) {
    if (rows > max_rows) continue;
    plan.tokens.assign(static_cast<size_t>(rows), 0);
    plan.sequences = {{.count = rows, .prompt_tokens = rows, .num_logits = std::min(rows, 1 + width_)}};
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const int64_t before = clock_.now_us();
      if (before - begin > kPatienceUs) return {};
      DI_CHECK_OK(model.forward(plan, state, workspace));
      DI_CHECK_OK(drafter_.note_rows(state, workspace));
      DI_CHECK_OK(device_.wait(device_.record()));
      const int64_t us = clock_.now_us() - before;
      if (repeat > 0) control_.note_verify_cost(rows, static_cast<double>(us));
    }
  }
  const DraftSequence sequence{.slot = 0, .last = 0, .next = 0};
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const int64_t before = clock_.now_us();
    DI_CHECK_OK(drafter_.draft({{&sequence, 1}, {}}, state, workspace, {results_.data(), confidence_.data()}));
    DI_CHECK_OK(device_.wait(device_.record()));
    if (repeat > 0) control_.note_draft_cost(1, static_cast<double>(clock_.now_us() - before));
  }
  return {};
}

// A verification of l drafts gives up to l + 1 tokens; more than the answer may have are of no use.
int32_t Speculation::limit(const Sequence& sequence) const {
  if (sequence.computed < sequence.drafts.noted_from + sequence.drafts.least_noted) return 0;
  const int64_t left = std::min(sequence.answer_limit, sequence.stop_limit) - sequence.answer_tokens() - 1;
  // Where the mask may not be ready, the row before all drafts stays, too (kTailSlots).
  const int64_t width = std::min(width_, sequence.masked ? kMaxDraft - 1 : kMaxDraft);
  return static_cast<int32_t>(std::clamp<int64_t>(std::min<int64_t>(left, sequence.request.speculation.max_draft), 0, width));
}

Status Speculation::propose(std::span<Sequence* const> decoding, int64_t other_rows, const StateView& state,
                            Workspace& workspace) {
  members_.clear();
  pass_us_ = 0;
  for (Sequence* sequence : decoding) sequence->drafts.count = sequence->drafts.tested = 0;
  const auto count = static_cast<int64_t>(decoding.size());
  note_context(decoding);
  const bool drafts = control_.drafts(count);
  idle_steps_ = drafts ? 0 : idle_steps_ + 1;
  const bool rests = options_.mode == SpeculationMode::kAuto;
  for (Sequence* sequence : decoding) {
    const bool awake = drafts && !sequence->mask_waits && (!rests || sequence->drafts.habit.drafts());
    if (awake && limit(*sequence) > 0) members_.push_back(sequence);
  }
  if (rests) follow(decoding, other_rows);
  if (members_.empty()) return {};
  DI_CHECK_OK(run_pass(state, workspace));
  blocks_.clear();
  usable_.clear();
  for (size_t i = 0; i < members_.size(); ++i) take_drafts(i);
  control_.choose(blocks_, {.sequences = count, .other_rows = other_rows, .context = context_});
  for (size_t i = 0; i < members_.size(); ++i) {
    Drafts& drafts = members_[i]->drafts;
    drafts.complete = blocks_[i].complete;
    if (blocks_[i].limit > 0 && blocks_[i].length == 0) drafts.habit.note_hopeless();
    if (rejects()) {
      drafts.first_row = static_cast<int32_t>(i), drafts.row_stride = static_cast<int32_t>(members_.size());
      drafts.tested = std::min(blocks_[i].length, usable_[i] + 1);
      blocks_[i].length = std::min(blocks_[i].length, usable_[i]);
    }
    drafts.count = blocks_[i].length;
  }
  reckon(count);
  return {};
}

void Speculation::note_context(std::span<Sequence* const> decoding) {
  context_ = 0;
  for (const Sequence* sequence : decoding) context_ += sequence->reached();
  context_ /= std::max<int64_t>(static_cast<int64_t>(decoding.size()), 1);
}

void Speculation::pass_over(std::span<Sequence* const> decoding, int64_t other_rows) {
  members_.clear();
  pass_us_ = 0;
  note_context(decoding);
  control_.pass_over(static_cast<int64_t>(decoding.size()));
  ++idle_steps_;
  if (options_.mode == SpeculationMode::kAuto) follow(decoding, other_rows);
}

// Noting rows costs a tenth of a small model's step, so in long pauses it is left out; prompts are noted always, as their tokens
// are most of what an answer's drafts go by. A sequence with a gap drafts again when the drafter has seen a few rows.
void Speculation::follow(std::span<Sequence* const> decoding, int64_t other_rows) {
  constexpr Position kLeastNoted = 16;
  constexpr int64_t kPaused = 2;  // a single step without drafts is no pause
  const bool awake =
      std::any_of(decoding.begin(), decoding.end(), [](const Sequence* sequence) { return !sequence->drafts.habit.away(); });
  noting_ = other_rows > 0 || decoding.empty() || (awake && idle_steps_ < kPaused);
  if (noting_) return;
  for (Sequence* sequence : decoding) {
    sequence->drafts.noted_from = sequence->tokens_ahead();
    sequence->drafts.least_noted = kLeastNoted;
  }
}

void Speculation::reckon(int64_t decoding) {
  int64_t rows = decoding;
  for (const ProposedBlock& block : blocks_) rows += block.length;
  const double plain = control_.verify_costs().at(decoding, context_);
  const double spent =
      control_.verify_costs().at(rows, context_) + control_.draft_costs().at(static_cast<int64_t>(blocks_.size()));
  price_ = plain > 0 ? spent / plain : 1;
}

Status Speculation::run_pass(const StateView& state, Workspace& workspace) {
  sequences_.clear();
  draws_.clear();
  for (const Sequence* sequence : members_) {
    sequences_.push_back({.slot = sequence->cache.lease.slot(),
                          .last = sequence->computed - 1,
                          .next = sequence->tokens.back(),
                          .window_floor = sequence->drafts.noted_from,
                          .rank = sequence->rank,
                          .tokens = sequence->tokens});
  }
  for (int32_t k = 0; k < drafter_.width(); ++k) {
    for (const Sequence* sequence : members_) {
      draws_.push_back(draw_settings(*sequence, k));
      draws_.back().stream = rejects() ? 1 : 0;
    }
  }
  const int64_t before = clock_.now_us();
  const Status status = drafter_.draft({sequences_, draws_}, state, workspace, {results_.data(), confidence_.data()});
  const Status done = device_.wait(device_.record());
  pass_us_ = clock_.now_us() - before;
  return status ? done : status;
}

// With rejection the schedule must not know where a block ends by what was drafted, so it may choose more drafts than are usable.
void Speculation::take_drafts(size_t index) {
  Sequence& sequence = *members_[index];
  const int32_t most = limit(sequence), usable = usable_drafts(sequence, index, most);
  ProposedBlock block{.limit = rejects() ? most : usable, .age = sequence.drafts.blocks, .history = &sequence.drafts.history};
  for (int32_t k = 0; k < most; ++k) ++stats_.drafted[static_cast<size_t>(k)];
  for (int32_t k = 0; k < width_; ++k) {
    block.logits[static_cast<size_t>(k)] = confidence_[static_cast<size_t>(k) * members_.size() + index];
  }
  sequence.drafts.block.logits = block.logits;
  blocks_.push_back(block);
  usable_.push_back(usable);
}

// A chain ends where the draft is no token, an end of the answer, or nothing the mask allows: no row behind it can count.
int32_t Speculation::usable_drafts(Sequence& sequence, size_t index, int32_t most) {
  const auto& stops = sequence.request.stop_ids;
  int32_t usable = 0;
  for (; usable < most; ++usable) {
    const TokenId token = results_[static_cast<size_t>(usable) * members_.size() + index].token;
    sequence.drafts.tokens[static_cast<size_t>(usable)] = token;
    if (token < 0 || std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    // Where a constraint begins, the rows behind would need it.
    if (sequence.mask && !sequence.masked && token == sequence.request.constraint.begins_after) break;
    if (sequence.masked && !sequence.mask->accept(token)) break;
  }
  if (sequence.masked && usable > 0) sequence.mask->rollback(usable);
  return usable;
}

void Speculation::note_verified(Sequence& sequence, int32_t verified, int32_t accepted) {
  sequence.usage.drafted_tokens += verified;
  sequence.usage.accepted_tokens += accepted;
  ++sequence.drafts.blocks;
  sequence.drafts.habit.note((1 + accepted) / price_);
  for (int32_t k = 0; k < verified; ++k) ++stats_.verified[static_cast<size_t>(k)];
  for (int32_t k = 0; k < accepted; ++k) ++stats_.accepted[static_cast<size_t>(k)];
  if (!sequence.drafts.complete) return;
  VerifiedBlock block = sequence.drafts.block;
  // Where the answer ended, nobody knows whether the drafts behind it would have stood.
  block.observed = static_cast<int8_t>(sequence.ended() ? accepted : verified);
  block.accepted = static_cast<int8_t>(accepted);
  control_.note_block(block);
}

void Speculation::note_step(StepOutcome outcome) {
  outcome.passes = static_cast<int64_t>(members_.size());
  outcome.draft_us = static_cast<double>(pass_us_);
  outcome.context = context_;
  control_.note_step(outcome);
  if (options_.fitted && control_.stats().fits != fits_) {
    fits_ = control_.stats().fits;
    options_.fitted(control_.stats().temperatures);
  }
  if (outcome.passes == 0) return;
  ++stats_.passes;
  stats_.draft_us += outcome.draft_us;
  stats_.verify_us += outcome.verify_us;
}

SpeculationStats Speculation::stats() const {
  SpeculationStats out = stats_;
  out.control = control_.stats();
  for (size_t at = 0; at < out.step_costs.size(); ++at) out.step_costs[at] = control_.verify_costs().table(at);
  out.pass_costs = control_.draft_costs().table();
  return out;
}

}  // namespace deepinfer
