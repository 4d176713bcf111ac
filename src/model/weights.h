// model/weights.h - the weights of a V4.1 model: plain views into the mapped checkpoint.
//
// bind_weights() looks up every tensor of model.md section 3, checks dtype and shape, scans for values that are not
// numbers, and fills in pointers. Nothing is copied or dequantised; the checkpoint stays alive inside Weights.
// Promise: all pointers of a bound Weights are valid and aligned, all optional parts are there exactly when the shape says
// so. A fault is a one-line Error naming file, tensor and what is wrong.
// Threads: const after bind_weights().
//
//   DI_TRY(auto checkpoint, Checkpoint::open(dir));
//   DI_TRY(auto shape, parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
//   DI_TRY(Weights weights, bind_weights(checkpoint, shape));
//   ops.matmul({.w = weights.layers[0].wq_a, ...});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model_shape.h"
#include "formats/checkpoint.h"
#include "ops/device.h"

namespace deepinfer {

// Residual-stream site (hc_attn_*, hc_ffn_*).
struct HyperWeights {
  const float* fn = nullptr;     // [2S + S*S, S*D]
  const float* base = nullptr;   // [2S + S*S]
  const float* scale = nullptr;  // [3]
};

struct FfnWeights {
  Matrix w1{}, w2{}, w3{};  // [I, D], [D, I], [I, D]
};

// KV sources only.
struct CompressorWeights {
  Matrix wkv{};                  // BF16 [HD, D]
  Matrix wgate{};                // BF16 [HD, D]; data == nullptr at ratio 1
  const Bf16* norm = nullptr;    // [HD]
  Matrix wk{};                   // BF16 [ID, HD]: index keys
  const Bf16* k_norm = nullptr;  // [ID]
};

// Index sources only.
struct IndexerWeights {
  Matrix wq_b{};          // F8 [IH*ID, QL]
  Matrix weights_proj{};  // BF16 [IH, D]
};

struct LayerWeights {
  const Bf16* attn_norm = nullptr;  // [D]
  const Bf16* ffn_norm = nullptr;   // [D]
  Matrix wq_a{};                    // F8 [QL, D]
  const Bf16* q_norm = nullptr;     // [QL]
  Matrix wq_b{};                    // F8 [H*HD, QL]
  Matrix wkv{};                     // F8 [HD, D]
  const Bf16* kv_norm = nullptr;    // [HD]
  const float* sink = nullptr;      // [H]
  Matrix wo_a{};                    // F8 [OG*OL, H*HD/OG]: n is the total of all groups, k of one group
  Matrix wo_b{};                    // F8 [D, OG*OL]
  HyperWeights hc_attn, hc_ffn;
  Matrix gate{};                           // BF16 [E, D]
  const float* gate_bias = nullptr;        // [E]
  const float* gate_bias_image = nullptr;  // [E]
  FfnWeights shared;                       // F8
  std::vector<Matrix> w1, w2, w3;          // FP4, one per expert: [I, D], [D, I], [I, D]
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
};

struct EngramWeights {
  const uint8_t* codes = nullptr;   // e4m3 [rows, EHD]
  const uint8_t* scales = nullptr;  // e8m0 [rows, EHD/32]
  Matrix wkv{};                     // F8 [(S+1)*D, columns*EHD]
  const Bf16* q_weight = nullptr;   // [S, D]
  const Bf16* k_weight = nullptr;   // [S, D]
};

// What the draft has beside its stages; present when draft_stages > 0.
struct DraftExtra {
  Matrix main_proj{};                    // F8 [D, targets*D]
  const Bf16* main_norm = nullptr;       // [D]
  const Bf16* norm = nullptr;            // [D]
  Matrix markov_embed{}, markov_head{};  // BF16 [V, R]
  const Bf16* confidence = nullptr;      // [D + R]
};

struct VisionBlockWeights {
  const Bf16* norm1 = nullptr;  // [VD]
  const Bf16* norm2 = nullptr;  // [VD]
  Matrix wqkv{};                // BF16 [3*VD, VD]
  const Bf16* wqkv_bias = nullptr;
  Matrix wo{};  // BF16 [VD, VD]
  const Bf16* wo_bias = nullptr;
  Matrix w1{};  // BF16 [2*VI, VD], gate rows first
  Matrix w2{};  // BF16 [VD, VI]
};

struct VisionWeights {
  Matrix patch_embed{};  // BF16 [VD, 3*patch*patch]
  const Bf16* patch_bias = nullptr;
  std::vector<VisionBlockWeights> blocks;
  const Bf16* norm = nullptr;  // [VD]
  Matrix aligner_w1{};         // BF16 [D, ds*ds*VD]
  const Bf16* aligner_b1 = nullptr;
  Matrix aligner_w2{};  // BF16 [D, D]
  const Bf16* aligner_b2 = nullptr;
};

struct Weights {
  Matrix embed{}, head{};      // BF16 [V, D]
  const Bf16* norm = nullptr;  // [D]
  // Learned rows around an image [D]; may be null in a checkpoint without vision.
  const Bf16* image_start = nullptr;
  const Bf16* image_end = nullptr;
  const Bf16* image_newline = nullptr;
  std::vector<LayerWeights> layers;
  std::vector<LayerWeights> draft;  // one per draft stage: window only, shape.draft_experts experts
  std::optional<DraftExtra> draft_extra;
  std::vector<EngramWeights> engram;  // one per shape.engram_layers
  std::optional<VisionWeights> vision;

  std::shared_ptr<const Checkpoint> checkpoint;  // keeps everything above alive
};

// Copies what operations read to a device, 128-byte aligned, in a few large pieces, and points `weights` there; Engram tables go
// to memory of the host that the device reads (Device::allocate_on_host); the learned rows around an image and the checkpoint
// stay as they are. The buffers hold the copies.
// `pictures_only`: what the vision tower reads; the rest is null.
Result<std::vector<Buffer>> upload_weights(Device& device, const ModelShape& shape, Weights& weights,
                                           const LoadProgress& progress, bool pictures_only = false);

// Every weight that is multiplied with (the others are looked up by row).
std::vector<Matrix*> product_weights(Weights& weights);

// One tensor a checkpoint of this shape consists of.
struct TensorSpec {
  std::string name;
  TensorType type = TensorType::kBf16;
  std::vector<int64_t> shape;
  bool optional = false;  // bound when present
};
std::vector<TensorSpec> expected_tensors(const ModelShape& shape);

struct BindOptions {
  // Which values are scanned for NaN and infinity: scales and vectors always; e4m3 codes, BF16 matrices and Engram tables
  // only below `scan_codes_below` bytes in all (reading 500 GB twice is no check, it is a second load).
  int64_t scan_codes_below = int64_t{1} << 30;
  // The values of what the vision tower does not read are not scanned, so they need not come from the disk.
  bool pictures_only = false;
  LoadProgress progress;
};
Result<Weights> bind_weights(std::shared_ptr<const Checkpoint> checkpoint, const ModelShape& shape,
                             const BindOptions& options = {});

}  // namespace deepinfer
