// model/v41_model.h - the DeepSeek-V4.1 model: config + weights + device constants behind the LanguageModel door.
//
// forward() is model.md section 5: embed, layers (Engram, attention with compressed KV, mixture of experts, single-pass
// hyper-connections), head - over nested row sets, so that bounded replay stops most prefill rows in the candidate layer.
// Besides the door it offers what speculation needs: the draft context of each step and the draft pass (section 11).
// Promise: const after create(); sizes only from the shape; a row's bytes do not depend on chunking, company or ranks.
// Threads: one forward()/draft() at a time per workspace; with several ranks each rank thread has its own model object on
// its own device, all of them bound to the same mapped weights.
//
//   DI_TRY(auto checkpoint, Checkpoint::open(dir));
//   DI_TRY(ModelShape shape, parse_model_config(checkpoint->config_text(), dir));
//   DI_TRY(Weights weights, bind_weights(checkpoint, shape));
//   DI_TRY(auto model, V41Model::create(device, {.name = dir, .shape = shape, .weights = weights, .token_map = map}));
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/drafter.h"
#include "model/engram_tables.h"
#include "model/language_model.h"
#include "model/v41_workspace.h"
#include "model/weights.h"
#include "parallel/communicator.h"

namespace deepinfer {

struct V41Options {
  std::string name;
  ModelShape shape;
  Weights weights;
  // Engram id -> compressed id (text/token_map.h); may be empty for a checkpoint without Engram layers.
  std::vector<int32_t> token_map;
  int32_t page_tokens = kPageTokens;
  LoadProgress progress = nullptr;  // of weights on their way to a device
  // For encode_image() alone: what the vision tower does not read is neither read, packed nor copied. No workspace can be made.
  bool pictures_only = false;
  // Ranks share the experts; null = one rank. Must outlive the model.
  Communicator* communicator = nullptr;
};

class V41Model final : public LanguageModel {
 public:
  static Result<std::unique_ptr<V41Model>> create(Device& device, V41Options options);
  // One rank of `whole`, which must outlive it: on a device of its own, with the same weights. REQUIRES: both devices read host
  // memory with the same kernels.
  static Result<std::unique_ptr<V41Model>> of_rank(Device& device, const V41Model& whole, Communicator& communicator);

  std::string name() const override { return options_.name; }
  std::string fingerprint() const override { return fingerprint_; }
  const ModelShape& shape() const override { return options_.shape; }
  const KvLayout& layout() const override { return layout_; }
  const V41Options& options() const { return options_; }
  // As bound to the checkpoint: host memory.
  const Weights& weights() const { return options_.weights; }
  // As the model's device reads them; the rows around an image stay on the host, where they are used.
  const Weights& device_weights() const { return placed_ ? *placed_ : options_.weights; }

  // What the device packed when the model was made: its bytes there, and how long it took.
  int64_t packed_bytes() const { return static_cast<int64_t>(packed_.bytes()); }
  double pack_seconds() const { return pack_seconds_; }

  Result<std::unique_ptr<Workspace>> make_workspace(Device& device, const WorkspaceLimits& limits) const override;
  // All limits free to choose (goldens and tests keep index scores); `ranks` is set here.
  Result<std::unique_ptr<V41Workspace>> make_test_workspace(V41Limits limits) const;

  Status forward(const StepPlan& plan, const StateView& state, Workspace& workspace) const override;
  // Whether forward() would take `plan`; ranks ask before the first of them begins.
  Status check(const StepPlan& plan, const V41Workspace& workspace) const;
  const Drafter* drafter() const override { return options_.shape.draft_stages > 0 ? &drafter_ : nullptr; }

  // Writes the draft rings of the decoder rows of the last forward(). REQUIRES: a workspace with
  // max_drafts > 0.
  Status draft_context(const StateView& state, V41Workspace& workspace) const;
  // Enqueues one draft pass: results in workspace.draft_results [G, n] (tokens d1..dG), draft_logits [G, n, V] and
  // draft_confidence [G, n]. `settings` holds the draw of each step and sequence [G][n]; empty = greedy. The workspace's
  // row arrays are used up, so draft_context() comes first.
  Status draft(std::span<const DraftSequence> sequences, std::span<const SampleRow> settings, const StateView& state,
               V41Workspace& workspace) const;

 private:
  friend class V41Pass;
  // The DSpark stages of the checkpoint behind the drafter's door.
  class StageDrafter final : public Drafter {
   public:
    explicit StageDrafter(const V41Model& model) : model_(model) {}
    int32_t width() const override { return model_.options_.shape.draft_block; }
    Status note_rows(const StateView& state, Workspace& workspace) const override;
    Status draft(const DraftBatch& batch, const StateView& state, Workspace& workspace, const DraftOutput& out) const override;
    const float* logits(const Workspace& workspace) const override;

   private:
    const V41Model& model_;
  };

  V41Model(Device& device, V41Options options) : device_(device), options_(std::move(options)), drafter_(*this) {}
  Status upload_constants();

  Device& device_;
  V41Options options_;
  KvLayout layout_;
  std::string fingerprint_;
  // Device constants: rotary frequencies of window and compressed layers [2, RD/2], Engram tables.
  Buffer constants_;
  Buffer packed_;  // the weights in the device's order
  double pack_seconds_ = 0;
  std::vector<Buffer> uploaded_;   // of a device that cannot read the mapped checkpoint
  std::optional<Weights> placed_;  // pointers into `uploaded_`
  float* freq_window_ = nullptr;
  float* freq_compressed_ = nullptr;
  int32_t* token_map_ = nullptr;
  int64_t *engram_multipliers_ = nullptr, *engram_primes_ = nullptr, *engram_offsets_ = nullptr;
  int32_t engram_pad_ = 0;
  StageDrafter drafter_;
};

// Rotary frequencies [RD/2] (model.md section 4): plain theta, or theta with YaRN.
std::vector<float> rope_frequencies(int32_t rope_dim, double theta, const YarnScaling* yarn);

}  // namespace deepinfer
