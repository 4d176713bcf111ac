// core/model_shape.h - every size of a DeepSeek-V4.1 checkpoint, as plain data (spec: model.md sections 1 and 2).
//
// Filled from config.json by model/config; nothing else is assumed anywhere. Symbols of the paper in comments.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace deepinfer {

// What operations hold in fixed arrays.
inline constexpr int32_t kMaxExperts = 1024, kMaxRopeDim = 256;

enum class AttentionMode { kWindow, kFull, kReuse, kReindex };

// What one layer reads; derived from the source lists.
struct LayerPlan {
  AttentionMode mode = AttentionMode::kWindow;
  int32_t ratio = 0;          // m(l): tokens per compressed entry, 0 = window only
  int32_t kv_source = -1;     // kv(l): layer whose global cache is read
  int32_t index_source = -1;  // ix(l): layer whose selection is used
  int32_t engram = -1;        // index into engram_layer_ids, -1 = none
  int32_t tap = -1;           // index into dspark_target_layer_ids, -1 = none
};

struct YarnScaling {
  double factor = 1, beta_fast = 32, beta_slow = 1;
  int64_t original_context = 0;
};

struct VisionShape {
  int32_t layers = 0, hidden = 0, heads = 0, intermediate = 0, patch = 14, downsample = 3;
  int32_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  double rope_theta = 10000;
  std::optional<double> max_wh_ratio;
};

struct ModelShape {
  int32_t vocab = 0;              // V
  int32_t hidden = 0;             // D
  int32_t layers = 0;             // L
  int32_t heads = 0;              // H
  int32_t head_dim = 0;           // HD
  int32_t rope_dim = 0;           // RD
  int32_t q_rank = 0;             // QL
  int32_t o_rank = 0;             // OL
  int32_t o_groups = 0;           // OG
  int32_t expert_hidden = 0;      // I
  int32_t experts = 0;            // E
  int32_t experts_per_token = 0;  // K
  float routed_scaling = 1.0f;
  float swiglu_limit = 0.0f;
  float rms_eps = 1e-20f;
  double rope_theta = 10000, compress_rope_theta = 160000;
  YarnScaling yarn;
  int64_t max_context = 0;
  int32_t window = 0;                    // W
  std::vector<int32_t> compress_ratios;  // per layer, draft stages last
  std::vector<int32_t> kv_sources, index_sources;
  int32_t index_heads = 0;        // IH
  int32_t index_dim = 0;          // ID
  int32_t index_topk = 0;         // TK
  int32_t candidate_source = -1;  // LC
  int32_t candidate_blocks = 0;   // CB
  int32_t candidate_block = 0;    // CS
  int32_t streams = 4;            // S
  int32_t sinkhorn_iters = 20;
  float hc_eps = 1e-6f;
  std::vector<int32_t> engram_layers;
  std::vector<int64_t> engram_rows;  // per Engram layer
  int32_t engram_ngram = 4, engram_heads = 0, engram_dim = 0;
  int64_t engram_vocab = 0;
  int32_t engram_pad_id = 0, engram_compressed_vocab = 0;
  int32_t draft_stages = 0, draft_block = 0;  // G
  int32_t draft_noise_id = 0;
  std::vector<int32_t> draft_targets;
  int32_t markov_rank = 0;  // R
  int32_t draft_experts = 0, draft_experts_per_token = 0;
  int32_t bos_id = 0, eos_id = 1, pad_id = 2, image_id = -1;
  std::optional<VisionShape> vision;

  std::vector<LayerPlan> plan;  // `layers` entries, derived

  int32_t engram_columns() const { return (engram_ngram - 1) * engram_heads; }
};

}  // namespace deepinfer
