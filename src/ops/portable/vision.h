// ops/portable/vision.h - the vision tower's own operations (model.md section 14).
#pragma once

#include "ops/portable/attention.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

// theta^(-2i / (dim/2)), the frequency of rotary channel i < dim/4.
DI_BODY float vision_frequency(float theta, int i, int dim) {
  return static_cast<float>(pow64(static_cast<double>(theta), -4.0 * i / dim));
}

// Angle vector of dim/2 entries: row * f, then column * f; halves (x1, x2) -> (x1 c - x2 s, x2 c + x1 s).
DI_BODY void vision_rope_at(const VisionRopeParams& p, int64_t row, int i) {
  const int half = p.dim / 2, quarter = p.dim / 4;
  const int32_t at = p.grid[row * 2 + (i >= quarter)];
  const CosSin v = cos_sin(static_cast<float>(at) * vision_frequency(p.theta, i % quarter, p.dim));
  for (int h = 0; h < 2 * p.heads; ++h) {  // q heads, then k heads
    Bf16* x = p.qkv + (row * 3 * p.heads + h) * p.dim + i;
    float a = to_float(x[0]), b = to_float(x[half]);
    rotate(a, b, v.cos, v.sin);
    x[0] = to_bf16(a);
    x[half] = to_bf16(b);
  }
}

DI_BODY void vision_rope_row(const VisionRopeParams& p, int64_t row) {
  for (int i = 0; i < p.dim / 2; ++i) vision_rope_at(p, row, i);
}

DI_BODY const Bf16* vision_part(const VisionAttentionParams& p, int64_t row, int part, int head) {
  return p.qkv + ((row * 3 + part) * p.heads + head) * p.dim;
}

DI_BODY float pointwise_value(const PointwiseParams& p, int64_t row, int i) {
  switch (p.kind) {
    case PointwiseKind::kAdd: return to_float(p.a[row * p.width + i]) + to_float(p.b[row * p.width + i]);
    case PointwiseKind::kSiluMul: {
      const Bf16* a = p.a + row * 2 * p.width + i;
      return round_bf16(silu32(to_float(a[0]))) * to_float(a[p.width]);
    }
    case PointwiseKind::kGelu: {
      const float x = to_float(p.a[row * p.width + i]);
      return x * 0.5f * (1.0f + erf32(x * 0.70710678f));
    }
  }
  return 0.0f;
}

DI_BODY void pointwise_at(const PointwiseParams& p, int64_t row, int i) {
  p.y[row * p.width + i] = to_bf16(pointwise_value(p, row, i));
}

DI_BODY void pointwise_row(const PointwiseParams& p, int64_t row) {
  for (int i = 0; i < p.width; ++i) pointwise_at(p, row, i);
}

DI_BODY int64_t unfolded_rows(const UnfoldParams& p) {
  const int ds = p.downsample;
  return int64_t{(p.grid_h + ds - 1) / ds} * ((p.grid_w + ds - 1) / ds);
}

// One patch of an output row's downsample x downsample block, zero outside the grid.
DI_BODY void unfold_patch(const UnfoldParams& p, int64_t row, int patch) {
  const int ds = p.downsample;
  const int across = (p.grid_w + ds - 1) / ds;
  const int y0 = static_cast<int>(row / across) * ds + patch / ds, x0 = static_cast<int>(row % across) * ds + patch % ds;
  const bool inside = y0 < p.grid_h && x0 < p.grid_w;
  const Bf16* x = p.x + (int64_t{y0} * p.grid_w + x0) * p.channels;
  Bf16* y = p.y + row * p.channels * ds * ds + patch;
  for (int c = 0; c < p.channels; ++c) y[c * ds * ds] = inside ? x[c] : Bf16{0};
}

DI_BODY void unfold_row(const UnfoldParams& p, int64_t row) {
  for (int patch = 0; patch < p.downsample * p.downsample; ++patch) unfold_patch(p, row, patch);
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
