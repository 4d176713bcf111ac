// model/v41_workspace.h - scratch memory of the V4.1 forward pass: every intermediate of a step, allocated once.
//
// Shapes use the symbols of core/model_shape.h; M = limits.max_rows, R = ranks. Buffers of the attention and the MoE part
// are shared by all layers and both row sets, because layers run one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "model/language_model.h"
#include "model/v41_rows.h"

namespace deepinfer {

// A value of the forward pass shown to a test: `rows` rows of `row_bytes` in device memory.
struct ProbePoint {
  const char* name;
  int32_t layer;
  void* data;
  int64_t row_bytes;
  int32_t rows;
  bool decoder_rows;  // else encoder rows
};
// Rows of the rank that has the most of them in a pass: so many of each rank travel to the others.
struct MostRows {
  int32_t encoder = 0, decoder = 0;
};
// Called while a step is enqueued; may download the value or upload another one (teacher forcing).
using Probe = std::function<void(const ProbePoint&)>;

struct V41Limits : WorkspaceLimits {
  int32_t ranks = 1;
  bool keep_scores = false;  // tests: index scores stay readable
};

class V41Workspace final : public Workspace {
 public:
  // Steps that may be enqueued before the oldest of them must have been waited for.
  static constexpr int32_t kStepsInFlight = 3;

  static Result<std::unique_ptr<V41Workspace>> create(Device& device, const ModelShape& shape, const V41Limits& limits);

  const float* logits() const override { return logit_values; }

  Device* device = nullptr;
  V41Limits limits;
  Probe probe;  // null in production

  // Row arrays: host staging blocks used in turn, and the device block.
  StepArraysLayout rows_layout{0, 0};
  std::array<std::vector<uint8_t>, kStepsInFlight> staging;
  int32_t next_staging = 0;
  StepArrays host, rows;

  // Residual streams of the two row sets [M, S, D], collapse weights entering the layer [M, S].
  Bf16 *x_encoder, *x_decoder;
  float *pre_encoder, *pre_decoder;
  float *rope_encoder, *rope_decoder;  // [2 tables: window, compressed][M, RD/2, 2]

  // One site.
  float *pre, *post, *comb;     // [M, S], [M, S], [M, S, S]
  Bf16* u;                      // [M, D] input of attention or MoE
  uint8_t *u_codes, *u_scales;  // q8 of u
  Bf16* site_out;               // [M, D] output of attention or MoE

  // Attention.
  Bf16 *qr_raw, *qr;  // [M, QL]
  uint8_t *qr_codes, *qr_scales;
  Bf16 *q, *o;                       // [M, H, HD]
  Bf16* kv;                          // [M, HD]
  uint8_t *kv_codes, *kv_scales;     // window rows of the step
  float *value, *gate;               // [M, HD] compressor
  Bf16 *latent, *latent_norm, *key;  // [M, HD], [M, HD], [M, ID]
  Bf16 *index_q, *index_w;           // [M, IH, ID], [M, IH]
  int32_t *selected, *candidates;    // [M, TK], [M, CB]
  float* score_scratch;              // [parallelism, max entries]
  float* scores_out;                 // [M, max entries] with keep_scores, else null
  int64_t max_entries;
  Bf16* wo;  // [M, OG*OL]
  uint8_t *wo_codes, *wo_scales;

  // MoE. With R ranks the gathered buffers hold R*M rows.
  float* router_logits;                  // [M, E]
  int32_t *expert_ids, *expert_ids_all;  // [M, K], [R*M, K]
  float *expert_weights, *expert_weights_all;
  uint8_t *u_codes_all, *u_scales_all;
  int32_t *pair_row, *pair_slot, *pair_of, *pair_offsets, *num_pairs, *home, *no_experts;
  int32_t* all_counts;            // of all ranks: encoder rows, decoder rows, pairs of the one, pairs of the other
  Bf16 *expert_gate, *expert_up;  // [R*M*K, I]
  uint8_t *expert_h_codes, *expert_h_scales;
  Bf16 *expert_out, *expert_send, *expert_recv;  // [R*M*K, D]
  Bf16 *shared_gate, *shared_up, *shared_out;    // [M, I], [M, I], [M, D]
  uint8_t *shared_h_codes, *shared_h_scales;

  // Engram.
  int64_t* hash_rows;                     // [layers, M, columns]
  Bf16* engram_rows;                      // [M, columns*EHD]
  uint8_t *engram_codes, *engram_scales;  // [layers, M, columns*EHD], and / 32
  Bf16* engram_kvv;                       // [M, (S+1)*D]
  float* engram_gates;                    // [M, S]

  // Head.
  Bf16 *z_source, *z;   // [max_logits, S, D] gathered streams, [max_logits, D]
  float* z_pre;         // [max_logits, S]
  float* logit_values;  // [max_logits, V]

  // Draft: taps of the decoder rows, main_x, and the block pass.
  Bf16 *taps, *main_raw, *main_x;  // [M, targets*D], [M, D], [M, D]
  uint8_t *taps_codes, *taps_scales;
  Bf16 *draft_collapsed, *draft_z;       // [max_drafts*G, D]
  float* draft_base;                     // [n*G, V] logits without the Markov part
  float* draft_logits;                   // [G, n, V] with it; n = sequences of the pass
  float* draft_confidence;               // [G, n]
  SampleRow* draft_settings;             // [G, n]
  SampleResult* draft_results;           // [G, n]
  std::vector<SampleRow> draft_staging;  // host copy of the settings
  float* sample_scratch;                 // [parallelism, 2*V]

  // Image rows of the step [M, D].
  Bf16* image_rows;

  // Walks the device has recorded (Device::replay), by all that their parameters depend on: which walk, its variant, whether rows
  // stop at the candidate layer, whether there are image rows, whether the candidate layer's window is kept, the memory of the
  // sequences and of draws. A branch of a walk on anything else would repeat the wrong work.
  using RecordingKey = std::tuple<int32_t, int32_t, bool, bool, bool, const void*, const void*, const void*, const void*>;
  // One forward pass of each kind and a draft pass of each batch size; more than this run unrecorded.
  static constexpr size_t kMostRecordings = 64;
  std::map<RecordingKey, std::unique_ptr<Recording>> recordings;

  StepCounts counts;  // of the last step
  // With ranks: set by whoever deals a pass out, as each of them must say the same; the capacity where nobody does.
  MostRows most_rows;
  std::array<std::array<int32_t, 4>, kStepsInFlight> all_counts_staging{};

 private:
  V41Workspace() = default;
  Buffer memory_;
};

}  // namespace deepinfer
