// model/vision.h - the vision tower: patches of one preprocessed image -> embedding rows of its span in the prompt.
//
// ViT with 2-D rotary positions, then the aligner over 3x3 patch cells (model.md section 14). The span is START, a row of
// IMAGE rows and a NEWLINE per cell row, END; all carry the id image_token_id in the prompt.
// Promise: rows depend on the pixels alone. encode() allocates its scratch and blocks until the rows are on the host.
// Threads: one encode() at a time per device.
//
//   DI_TRY(VisionSpan span, encode_image(device, shape, weights, patches, grid));
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/model_shape.h"
#include "model/weights.h"
#include "ops/device.h"

namespace deepinfer {

struct PatchGrid {
  int32_t rows = 0, columns = 0;  // patches
};

// Role of each row of a span; the values are the goldens' token types.
enum class SpanRole : int32_t { kStart = 0, kImage = 1, kNewline = 2, kEnd = 3 };
std::vector<SpanRole> span_roles(PatchGrid grid, int32_t downsample);

// Named intermediate values for tests, which may replace them; null in production. `data` is device memory, BF16 [rows, width].
using VisionProbe = std::function<void(const char* name, int32_t block, Bf16* data, int32_t rows, int32_t width)>;

struct VisionSpan {
  std::vector<SpanRole> roles;
  std::vector<uint16_t> embeddings;  // BF16 [roles.size(), hidden]
};

// `patches`: BF16 [rows*columns, 3*patch*patch], row-major, each flattened channel, y, x.
Result<VisionSpan> encode_image(Device& device, const ModelShape& shape, const Weights& weights,
                                std::span<const uint16_t> patches, PatchGrid grid, const VisionProbe& probe = nullptr);

}  // namespace deepinfer
