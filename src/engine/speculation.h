// engine/speculation.h - drafts for the sequences that decode, and what becomes of them.
//
// Before a step, propose() runs one draft pass over the decoding sequences and lets scheduler/draft_control decide how many
// drafts of each are verified (Sequence::drafts). Behind each forward pass note_rows() lets the drafter keep its context. After
// the step note_verified() and note_step() tell what came of it. The sampler draws every token itself, keyed by seed and
// position, so nothing that is decided here can change an answer (speculation.md section 2, mode `coupled`). With rejection
// the sampler also sees the drafts; then no draft may decide whether it is tested itself (section 5).
// Promise: nothing is allocated once warm.
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "model/drafter.h"

namespace deepinfer {

class Speculation {
 public:
  // Null when the options or the model leave nothing to do.
  static std::unique_ptr<Speculation> create(Device& device, const LanguageModel& model, const SpeculationOptions& options,
                                             int32_t max_batch);
  bool rejects() const { return options_.verify == DraftVerification::kRejection; }
  // What rejection compares with; null in the coupled mode.
  const float* draft_logits(const Workspace& workspace) const { return rejects() ? drafter_.logits(workspace) : nullptr; }
  // Whether the drafter can do what the options ask.
  Status check(const Workspace& workspace) const;

  // Drafts of one sequence and step at most.
  int32_t width() const { return width_; }

  // Measures a few steps and passes, so that the first answer is not the experiment. Before any sequence is opened: it writes to
  // the first slot and page, which are cleared or overwritten when they are taken.
  Status probe(const LanguageModel& model, const StateView& state, Workspace& workspace, int32_t max_rows);

  // Sets the drafts of every sequence of `decoding`, whose last token is the only one not computed. `other_rows` are expected to
  // share the step. Waits for the draft pass.
  Status propose(std::span<Sequence* const> decoding, int64_t other_rows, const StateView& state, Workspace& workspace);
  // Whether propose() for so many sequences would run no pass.
  bool rests(int64_t decoding) const { return control_.rests(decoding); }
  // In place of propose() while the last tokens of `decoding` are still being drawn: no drafts.
  void pass_over(std::span<Sequence* const> decoding, int64_t other_rows);
  Status note_rows(const StateView& state, Workspace& workspace) {
    return noting_ ? drafter_.note_rows(state, workspace) : Status();
  }
  void note_verified(Sequence& sequence, int32_t verified, int32_t accepted);
  // Time of the last propose()'s draft pass; 0 = it had none.
  int64_t pass_us() const { return pass_us_; }
  // REQUIRES: of `outcome`, passes, draft_us and context are left to this.
  void note_step(StepOutcome outcome);

  SpeculationStats stats() const;

 private:
  Speculation(Device& device, const Drafter& drafter, const SpeculationOptions& options, int32_t width, int32_t max_batch);
  int32_t limit(const Sequence& sequence) const;
  Status run_pass(const StateView& state, Workspace& workspace);
  void take_drafts(size_t index);
  int32_t usable_drafts(Sequence& sequence, size_t index, int32_t most);
  void reckon(int64_t decoding);
  void note_context(std::span<Sequence* const> decoding);
  void follow(std::span<Sequence* const> decoding, int64_t other_rows);

  Device& device_;
  const Drafter& drafter_;
  const SpeculationOptions options_;
  const int32_t width_;
  DraftControl control_;
  SteadyClock clock_;
  // Of the last pass, reused.
  std::vector<Sequence*> members_;
  std::vector<DraftSequence> sequences_;
  std::vector<SampleRow> draws_;       // [drafter width, n]
  std::vector<SampleResult> results_;  // [drafter width, n]
  std::vector<float> confidence_;      // [drafter width, n]
  std::vector<ProposedBlock> blocks_;
  std::vector<int32_t> usable_;  // drafts of each block before one that ends it by what it is
  int64_t pass_us_ = 0;
  int64_t context_ = 0;  // of the step at hand, mean of what decodes
  bool noting_ = true;
  int64_t idle_steps_ = 0;  // in a row without a draft pass by the governor's word
  double price_ = 1;        // of the step at hand, in steps without drafts
  SpeculationStats stats_;
  int64_t fits_ = 0;  // told to options_.fitted
};

}  // namespace deepinfer
