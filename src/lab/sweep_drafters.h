// lab/sweep_drafters.h - drafters around another one, for the speculation sweep: one that lies in bursts, one that remembers.
//
// Promise: what the drafter inside costs is paid as without them. Each waits for the pass it changes or keeps.
// Threads: as Drafter.
//
//   SpoiledDrafter spoiled(*model.drafter(), device);
//   RecordingDrafter recorder(*model.drafter(), device);   ... run ...   recorder.blocks(answers)
#pragma once

#include <map>
#include <vector>

#include "model/drafter.h"
#include "ops/device.h"
#include "policy/calibration.h"

namespace deepinfer {

// Answers by the seed of their request.
using SweepAnswers = std::map<uint64_t, std::vector<TokenId>>;

// The worst that a text can do to whoever decides by confidence and by experience: for 32 tokens drafts are as the drafter makes
// them, for the next 32 each is wrong and sure.
class SpoiledDrafter final : public Drafter {
 public:
  SpoiledDrafter(const Drafter& inner, Device& device) : inner_(inner), device_(device) {}
  int32_t width() const override { return inner_.width(); }
  Status note_rows(const StateView& state, Workspace& workspace) const override { return inner_.note_rows(state, workspace); }
  Status draft(const DraftBatch& batch, const StateView& state, Workspace& workspace, const DraftOutput& out) const override;

 private:
  const Drafter& inner_;
  Device& device_;
};

// Keeps what was drafted, pass by pass, so that other decisions can be tried on the same drafts.
class RecordingDrafter final : public Drafter {
 public:
  RecordingDrafter(const Drafter& inner, Device& device) : inner_(inner), device_(device) {}
  int32_t width() const override { return inner_.width(); }
  Status note_rows(const StateView& state, Workspace& workspace) const override { return inner_.note_rows(state, workspace); }
  Status draft(const DraftBatch& batch, const StateView& state, Workspace& workspace, const DraftOutput& out) const override;

  // The blocks of each pass with what became of them; `prompts` has the tokens of each prompt. Drafts behind the end of an answer
  // were not observed.
  std::vector<std::vector<VerifiedBlock>> blocks(const SweepAnswers& answers, const std::map<uint64_t, size_t>& prompts) const;

 private:
  struct Block {
    uint64_t seed;
    size_t tokens;  // of prompt and answer before the drafts
    std::array<TokenId, kMaxDraft> drafts;
    std::array<float, kMaxDraft> logits;
  };
  const Drafter& inner_;
  Device& device_;
  mutable std::vector<std::vector<Block>> passes_;
};

// Patterns of which five drafts stand, so that a step gives `tokens` on average, 1 to 6 (model/oracle_drafter.h).
std::vector<uint32_t> patterns_for(double tokens);

}  // namespace deepinfer
