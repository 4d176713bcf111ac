// model/drafter.h - what proposes the next tokens of a sequence, to be verified by the model.
//
// Between two forward passes a drafter proposes a block of width() tokens for each sequence of a batch: the first stands
// behind `next`, the token drawn last, which no forward pass has seen yet. Behind every forward pass it is told, so that it can
// keep what it needs of the rows (the DSpark stages keep rings of their taps in the state blocks).
// Promise: proposals change speed, never tokens: whoever verifies draws each token itself (speculation.md section 2). Nothing is
// allocated once warm. Rejected rows need no call: what they left behind is overwritten before it is read.
// Threads: as LanguageModel.
//
//   DI_CHECK_OK(model.forward(plan, state, *workspace));
//   DI_CHECK_OK(drafter->note_rows(state, *workspace));
//   ... wait, choose the next token ...
//   DI_CHECK_OK(drafter->draft({sequences, draws}, state, *workspace, {results, confidence}));
#pragma once

#include <span>

#include "model/language_model.h"

namespace deepinfer {

// One sequence of a draft pass: its last computed position and the token that will come next.
struct DraftSequence {
  SlotId slot = 0;
  Position last = 0;
  TokenId next = 0;
  Position window_floor = 0;          // positions before it were never noted
  int32_t rank = 0;                   // that owns it
  std::span<const TokenId> tokens{};  // all of the sequence, `next` last; for drafters that look at text
};

// How draft k of sequence i is drawn: draws[k * sequences.size() + i]; no draws = greedy.
struct DraftBatch {
  std::span<const DraftSequence> sequences;
  std::span<const SampleRow> draws;
};

// Host memory [width, n], valid when the pass was waited for; k-major as the draws.
struct DraftOutput {
  SampleResult* draws = nullptr;
  float* confidence = nullptr;  // logit of: survives if all drafts before it did
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Drafts of one pass and sequence.
  virtual int32_t width() const = 0;
  // Enqueued directly behind a forward pass on the same workspace.
  virtual Status note_rows(const StateView& state, Workspace& workspace) const = 0;
  // Logits [width, n, vocab] that the last pass drew from, on the device, until the next pass; null = it has none, and its drafts
  // cannot be verified by rejection.
  virtual const float* logits(const Workspace&) const { return nullptr; }
  // Enqueues one pass. REQUIRES: at most WorkspaceLimits::max_drafts sequences.
  virtual Status draft(const DraftBatch& batch, const StateView& state, Workspace& workspace, const DraftOutput& out) const = 0;
};

}  // namespace deepinfer
