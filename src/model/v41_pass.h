// model/v41_pass.h - one forward or draft pass: the walk through layers that enqueues operations. Internal to `model`.
//
// A pass borrows model, state and workspace for the time of enqueuing and holds nothing itself.
#pragma once

#include "model/v41_model.h"

namespace deepinfer {

// The rows a layer works on and where their residual streams are.
struct RowSet {
  Rows rows;
  const RowArrays* arrays;  // device arrays
  const WindowSpan* spans;  // of the layer at hand
  Bf16* x;                  // [n, S, D]
  float* pre;               // [n, S] collapse weights entering the layer
  const float* rope;        // [2][M, RD/2, 2]
  int32_t live;             // rows, as the host knows them (probes)
  bool decoder;
};

class V41Pass {
 public:
  V41Pass(const V41Model& model, const StateView& state, V41Workspace& workspace)
      : m_(model), s_(model.options_.shape), state_(state), w_(workspace), ops_(workspace.device->ops()) {}

  Status forward(const StepPlan& plan);
  Status draft_context();
  Status draft(std::span<const DraftSequence> sequences, std::span<const SampleRow> settings);

 private:
  // What a device may record (Device::replay): from the row arrays in device memory to the results.
  enum class Walk : int32_t { kForward, kDraftContext, kDraft };
  // Runs `fn`, whose parameters depend on the pass's counts of rows only through device memory, and on these arguments.
  void repeat(Walk walk, int32_t variant, FunctionRef<void()> fn);

  // v41_pass.cc: rows, layers, Engram, head
  void walk_layers();
  Status upload_rows(const StepPlan& plan);
  uint8_t* next_staging();
  void upload_arrays(const uint8_t* block, int32_t top_k);
  void upload_images(const StepPlan& plan);
  void embed();
  RowSet encoder_rows() const;
  RowSet decoder_rows() const;
  bool split() const { return w_.counts.decoder != w_.counts.encoder; }
  void rope_tables(const RowSet& set, float* out);
  void layer(int32_t l, const RowSet& set);
  void enter_layer(int32_t l, const RowSet& set);
  void site_input(const RowSet& set, const HyperWeights& hyper, float* pre_out, const float* pre_in, const Bf16* norm);
  void expand(const RowSet& set);
  void engram_hash(const RowSet& set);
  void engram_rows(const RowSet& set);
  void engram(int32_t index, const RowSet& set);
  void candidate_split(int32_t l);
  void head();
  void probe(const char* name, int32_t layer, void* data, int64_t row_bytes, const RowSet& set) const;

  // v41_attention.cc
  void attention(int32_t l, const RowSet& set, bool own_window_rows);
  void window_rows(const LayerWeights& layer, int32_t ring, const RowSet& set, const Bf16* input_kv);
  void ring_write(int32_t ring, const RowSet& set);
  void project_window(const LayerWeights& layer, int32_t ring, const RowSet& set);
  void global_entries(int32_t l, const RowSet& set);
  void select(int32_t l, const RowSet& set);
  void attend(const LayerWeights& layer, int32_t ring, const RowSet& set, const LayerPlan* plan);
  void output_projection(const LayerWeights& layer, const RowSet& set);
  PageView page_view(int32_t source_layer) const;
  const float* rope_of(const RowSet& set, int32_t ratio) const;

  // v41_moe.cc
  void moe(const LayerWeights& layer, int32_t l, int32_t experts, int32_t top_k, bool draft, const RowSet& set);
  void expert_rows(const LayerWeights& layer, int32_t experts, int32_t top_k, const RowSet& set);
  void expert_rows_over_ranks(const LayerWeights& layer, int32_t experts, int32_t top_k, const RowSet& set);
  void group_pairs(const LayerWeights& layer, Rows rows, const int32_t* ids, int32_t first, int32_t count, int32_t top_k);
  void run_experts(const LayerWeights& layer, Rows rows, const float* weights, const uint8_t* codes, const uint8_t* scales,
                   int32_t first, int32_t count, int32_t top_k);
  // Of each rank, in the buffers that hold those of all.
  int32_t rows_of_ranks(const RowSet& set) const { return set.decoder ? w_.most_rows.decoder : w_.most_rows.encoder; }
  void shared_expert(const LayerWeights& layer, const RowSet& set);

  // v41_draft.cc
  void walk_draft_context();
  Status upload_draft_rows(std::span<const DraftSequence> sequences, std::span<const SampleRow> settings);
  void draft_stage(int32_t stage, const RowSet& set);
  void draft_heads(int32_t sequences, const RowSet& set);

  void matmul(Rows rows, const Bf16* x, int64_t x_stride, const Matrix& w, void* y, OutputType type, float scale = 1.0f) const;
  void matmul8(Rows rows, const uint8_t* codes, const uint8_t* scales, const Matrix& w, Bf16* y) const;
  void quantize(Rows rows, const Bf16* x, int32_t width, uint8_t* codes, uint8_t* scales) const;
  void rms_norm(Rows rows, const Bf16* x, const Bf16* weight, int32_t width, Bf16* y) const;
  Rows rows_of(const int32_t* count) const { return {count, w_.limits.max_rows}; }

  const V41Model& m_;
  const ModelShape& s_;
  const StateView& state_;
  V41Workspace& w_;
  const OpTable& ops_;
};

}  // namespace deepinfer
