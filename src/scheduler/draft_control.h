// scheduler/draft_control.h - all decisions of speculation that are made from measurements: whether to draft, how many drafts of
// each sequence to verify, and what to learn from the outcome (speculation.md sections 3, 4 and 6).
//
// Numbers in, numbers out: the engine and a simulator feed it the same way. Nothing it decides changes a token in the coupled
// mode. Modes: kOn drafts always and follows the schedule; kAuto stops when measured steps say that drafting loses.
// Promise: no clock; nothing is allocated once warm except in a refit of the calibration, every 10,000 observed blocks.
// Threads: one.
//
//   if (control.drafts(sequences)) { ... run the draft pass ...; control.choose(blocks, load); }
//   ... run the step ...
//   control.note_block(block); control.note_step({...});
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"
#include "policy/calibration.h"
#include "policy/draft_governor.h"
#include "policy/step_costs.h"
#include "policy/verification.h"

namespace deepinfer {

enum class SpeculationMode { kOff, kOn, kAuto };
enum class SpeculationSchedule { kFixed, kSync, kAsync };

struct DraftControlOptions {
  SpeculationMode mode = SpeculationMode::kAuto;
  SpeculationSchedule schedule = SpeculationSchedule::kSync;
  int32_t width = 5;
  int32_t lag = 2;                              // of the confidences that decide the capacity in kAsync, in steps: 1 or 2
  Temperatures temperatures = kNoTemperatures;  // of an earlier fit
};

// Survival of a sequence's blocks in its last steps, newest first; zero = none.
using SurvivalHistory = std::array<std::array<float, kMaxDraft>, 2>;

// The drafts of one sequence in one step.
struct ProposedBlock {
  int32_t limit = 0;                      // drafts that may be verified
  int64_t age = 0;                        // blocks of this sequence before
  std::array<float, kMaxDraft> logits{};  // the drafter's confidence
  SurvivalHistory* history = nullptr;     // kept here for kAsync
  int32_t length = 0;                     // out: drafts to verify
  bool complete = false;                  // out: all of them, whatever their confidence, so that the outcome may calibrate
};

// What a step holds besides its drafts.
struct StepLoad {
  int64_t sequences = 0;   // that decode
  int64_t other_rows = 0;  // that share the step
  int64_t context = 0;     // tokens, mean of the sequences
};

struct StepOutcome {
  int64_t rows = 0;       // all of the step
  int64_t context = 0;    // as StepLoad
  int64_t sequences = 0;  // that decoded
  int64_t drafts = 0;     // verified
  int64_t passes = 0;     // sequences of the draft pass, 0 = there was none
  int64_t emitted = 0;    // tokens of those sequences
  double verify_us = 0, draft_us = 0;
};

struct DraftControlStats {
  double gained_tokens = 0, gained_us = 0;  // against steps without drafts, by the cost table; negative = lost
  int64_t pauses = 0;
  // How far confidences are from what came, by place, of the blocks since the start and those of the last fit: as the drafter
  // gives them, and scaled.
  std::array<double, kMaxDraft> error_unscaled{}, error_scaled{};
  int64_t fits = 0;
  Temperatures temperatures = kNoTemperatures;
};

class DraftControl {
 public:
  explicit DraftControl(const DraftControlOptions& options);

  // Whether this step has a draft pass; counts steps, so it is asked once per step.
  bool drafts(int64_t sequences);
  // Whether drafts() would say no for so many as long as nothing else is measured.
  bool rests(int64_t sequences) const {
    return sequences == 0 || (options_.mode == SpeculationMode::kAuto &&
                              (!governors_[size_of(sequences)].drafts() || best_gain(sequences) < kLeastHope));
  }
  // In place of drafts() in a step that cannot have drafts: a pause goes on, nothing else counts.
  void pass_over(int64_t sequences) {
    DraftGovernor& here = governors_[size_of(sequences)];
    if (sequences > 0 && options_.mode == SpeculationMode::kAuto && !here.drafts()) here.rest();
  }
  // Sets `length` and `complete`.
  void choose(std::span<ProposedBlock> blocks, const StepLoad& load);
  void note_block(const VerifiedBlock& block);
  void note_step(const StepOutcome& outcome);

  // Costs measured elsewhere, before the first step.
  void note_verify_cost(int64_t rows, double us) { verify_.add(rows, 0, us); }
  void note_draft_cost(int64_t sequences, double us) { draft_.add(sequences, us); }
  const ContextCosts& verify_costs() const { return verify_; }
  const StepCosts& draft_costs() const { return draft_; }
  DraftControlStats stats() const;

 private:
  static constexpr double kLeastHope = 1;
  static size_t size_of(int64_t sequences);
  // What drafting would win if every draft stood, by the cost table: where even that is a loss nothing need be tried.
  double best_gain(int64_t sequences) const;
  void schedule(std::span<ProposedBlock> blocks, const StepLoad& load);
  int64_t old_capacity(std::span<const ProposedBlock> blocks, int64_t sequences, StepsPerSecond steps_per_second);
  void watch(const VerifiedBlock& block);
  void refit();

  const DraftControlOptions options_;
  ContextCosts verify_;
  StepCosts draft_;
  static constexpr size_t kBatchSizes = 12;
  std::array<DraftGovernor, kBatchSizes> governors_;  // by the binary size of the batch: what pays for one may not pay for many
  Temperatures temperatures_;
  PlaceBins unscaled_, scaled_;
  int64_t context_ = 0;                           // of the last step
  std::array<float, kMaxDraft> mean_survival_{};  // of sequences without history
  VerificationScheduler scheduler_;
  // Reused by every step.
  std::vector<float> survival_, old_survival_;
  std::vector<int32_t> limits_, lengths_;
  std::vector<VerifiedBlock> observed_;
  size_t next_observed_ = 0;
  int64_t unfitted_ = 0;
  DraftControlStats stats_;
};

}  // namespace deepinfer
