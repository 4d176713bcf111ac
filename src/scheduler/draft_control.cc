#include "scheduler/draft_control.h"

#include <algorithm>
#include <bit>

namespace deepinfer {

namespace {

constexpr int64_t kCompleteEvery = 64;  // verifications of a sequence of which one takes all drafts
constexpr double kIdle = 1.02;          // below this price of a whole verification ranking costs more than it saves
constexpr size_t kObserved = 10000;     // blocks of one fit
constexpr float kMeanKeep = 0.98f;

}  // namespace

DraftControl::DraftControl(const DraftControlOptions& options) : options_(options), temperatures_(options.temperatures) {
  observed_.reserve(kObserved);
}

size_t DraftControl::size_of(int64_t sequences) {
  const size_t size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(sequences, 1))));
  return std::min(size, kBatchSizes - 1);
}

bool DraftControl::drafts(int64_t sequences) {
  if (sequences == 0) return false;
  if (options_.mode != SpeculationMode::kAuto) return true;
  DraftGovernor& here = governors_[size_of(sequences)];
  if (!here.drafts()) {
    here.rest();
    return false;
  }
  return best_gain(sequences) >= kLeastHope && !here.compares();
}

double DraftControl::best_gain(int64_t sequences) const {
  if (verify_.empty()) return kLeastHope;
  const double plain = verify_.at(sequences, context_), pass = draft_.at(sequences);
  double best = 0;
  for (int32_t l = 1; l <= options_.width; ++l) {
    best = std::max(best, (l + 1) * plain / (verify_.at(sequences * (l + 1), context_) + pass));
  }
  return best;
}

void DraftControl::choose(std::span<ProposedBlock> blocks, const StepLoad& load) {
  const int64_t plain = load.other_rows + load.sequences, whole = plain + load.sequences * options_.width;
  const bool idle = !verify_.empty() && verify_.at(whole, load.context) <= kIdle * verify_.at(plain, load.context);
  const bool all = options_.schedule == SpeculationSchedule::kFixed || verify_.empty() || idle;
  if (!all) schedule(blocks, load);
  for (ProposedBlock& block : blocks) {
    block.complete = all || block.age % kCompleteEvery == kCompleteEvery - 1;
    if (block.complete) block.length = block.limit;
  }
}

void DraftControl::schedule(std::span<ProposedBlock> blocks, const StepLoad& load) {
  const size_t width = static_cast<size_t>(options_.width);
  survival_.resize(blocks.size() * width);
  limits_.resize(blocks.size());
  lengths_.resize(blocks.size());
  const int64_t n = static_cast<int64_t>(blocks.size());
  const auto steps_per_second = [&](int64_t rows) {
    return 1e6 / (verify_.at(load.other_rows + rows, load.context) + draft_.at(n));
  };
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto row = std::span(survival_).subspan(i * width, width);
    survival_of(std::span<const float>(blocks[i].logits).first(width), temperatures_, row);
    limits_[i] = blocks[i].limit;
  }
  const DraftBlocks now{.survival = survival_, .limits = limits_, .width = options_.width, .sequences = load.sequences};
  if (options_.schedule == SpeculationSchedule::kSync) {
    scheduler_.sync(now, steps_per_second, lengths_);
  } else {
    scheduler_.admit(now, old_capacity(blocks, load.sequences, steps_per_second), lengths_);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].length = lengths_[i];
    auto& history = *blocks[i].history;
    history[1] = history[0];
    std::copy_n(survival_.begin() + static_cast<std::ptrdiff_t>(i * width), width, history[0].begin());
    for (size_t j = 0; j < width; ++j) mean_survival_[j] = kMeanKeep * mean_survival_[j] + (1 - kMeanKeep) * history[0][j];
  }
}

// From what was known `lag` steps ago, so that on a device the row count of a step need not wait for its drafts.
int64_t DraftControl::old_capacity(std::span<const ProposedBlock> blocks, int64_t sequences, StepsPerSecond steps_per_second) {
  const size_t width = static_cast<size_t>(options_.width);
  old_survival_.resize(blocks.size() * width);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& remembered = (*blocks[i].history)[static_cast<size_t>(std::clamp(options_.lag, 1, 2) - 1)];
    const auto& old = remembered[0] > 0 ? remembered : mean_survival_;
    std::copy_n(old.begin(), width, old_survival_.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  return scheduler_.capacity({.survival = old_survival_, .limits = limits_, .width = options_.width, .sequences = sequences},
                             steps_per_second);
}

void DraftControl::note_block(const VerifiedBlock& block) {
  if (block.observed == 0) return;
  watch(block);
  if (observed_.size() < kObserved) {
    observed_.push_back(block);
  } else {
    observed_[next_observed_] = block;
    next_observed_ = (next_observed_ + 1) % kObserved;
  }
  if (++unfitted_ >= static_cast<int64_t>(kObserved)) refit();
}

void DraftControl::watch(const VerifiedBlock& block) {
  add_block(block, kNoTemperatures, unscaled_);
  add_block(block, temperatures_, scaled_);
}

void DraftControl::refit() {
  unfitted_ = 0;
  temperatures_ = fit_temperatures(observed_, options_.width);
  unscaled_ = scaled_ = {};
  for (const VerifiedBlock& block : observed_) watch(block);
  ++stats_.fits;
}

// The gain is reckoned with the medians of the cost table, so that one disturbed step decides nothing.
void DraftControl::note_step(const StepOutcome& outcome) {
  context_ = outcome.context;
  verify_.add(outcome.rows, outcome.context, outcome.verify_us);
  if (outcome.passes > 0) draft_.add(outcome.passes, outcome.draft_us);
  // A step that also runs prompts says little about decoding.
  if (outcome.passes == 0 || outcome.rows != outcome.sequences + outcome.drafts) return;
  const double plain_step = verify_.at(outcome.rows - outcome.drafts, outcome.context);
  const double spent = verify_.at(outcome.rows, outcome.context) + draft_.at(outcome.passes);
  const double tokens = static_cast<double>(outcome.emitted) / static_cast<double>(outcome.sequences);
  stats_.gained_us += tokens * plain_step - spent;
  if (plain_step > 0)
    stats_.gained_tokens += static_cast<double>(outcome.emitted) - spent / plain_step * static_cast<double>(outcome.sequences);
  if (options_.mode == SpeculationMode::kAuto)
    governors_[size_of(outcome.sequences)].note(tokens * plain_step, spent, outcome.passes);
}

DraftControlStats DraftControl::stats() const {
  DraftControlStats out = stats_;
  out.temperatures = temperatures_;
  for (size_t k = 0; k < kMaxDraft; ++k) {
    out.error_unscaled[k] = unscaled_[k].error();
    out.error_scaled[k] = scaled_[k].error();
  }
  for (const DraftGovernor& governor : governors_) out.pauses += governor.pauses();
  return out;
}

}  // namespace deepinfer
