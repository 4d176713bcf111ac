// ops/portable/quant.h - the three block quantisers q8, q4e8, q4e4 and reading weights (model.md sections 3 and 4).
#pragma once

#include "ops/ops.h"
#include "ops/portable/math.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

inline constexpr int kScaleBlock = 32;  // channels per e8m0 scale
inline constexpr int kMainBlock = 16;   // channels per e4m3 scale of a main KV row

template <int N>
DI_BODY float block_max(const float* x) {
  float lane[8] = {};
  for (int i = 0; i < N; i += 8) {
    for (int l = 0; l < 8; ++l) lane[l] = max32(lane[l], abs32(x[i + l]));
  }
  for (int l = 1; l < 8; ++l) lane[0] = max32(lane[0], lane[l]);
  return lane[0];
}

// The inverse of an e8m0 scale whose code is in 1..253.
DI_BODY float e8m0_inverse(uint8_t code) { return bits_float(static_cast<uint32_t>(254 - code) << 23); }

DI_BODY float clamp32(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; }

// 32 values -> 32 codes; returns the scale's code. A NaN gives code NaN, an infinity scale NaN.
DI_BODY uint8_t quantize_q8(const float* x, uint8_t* codes) {
  const float a = max32(block_max<kScaleBlock>(x), 1e-4f);
  const uint8_t scale = e8m0_ceil(a * (1.0f / 448.0f));
  const float inverse = e8m0_inverse(scale);
  for (int i = 0; i < kScaleBlock; ++i) codes[i] = to_e4m3(x[i] * inverse);
  return scale;
}

// 32 values -> 32 nibbles (one per byte); returns the scale's code.
DI_BODY uint8_t quantize_q4e8(const float* x, uint8_t* nibbles) {
  const float a = max32(block_max<kScaleBlock>(x), 6.0f * 1.17549435e-38f);
  const uint8_t scale = e8m0_ceil(a * (1.0f / 6.0f));
  const float inverse = e8m0_inverse(scale);
  for (int i = 0; i < kScaleBlock; ++i) nibbles[i] = to_e2m1(clamp32(x[i] * inverse, 6.0f));
  return scale;
}

// 16 values -> 16 nibbles (one per byte); returns the scale as e4m3.
DI_BODY uint8_t quantize_q4e4(const float* x, uint8_t* nibbles) {
  const float a = max32(block_max<kMainBlock>(x), 6.0f * 0.001953125f);
  const uint8_t scale = to_e4m3(a / 6.0f);
  const float s = e4m3_to_float(scale);
  for (int i = 0; i < kMainBlock; ++i) nibbles[i] = to_e2m1(clamp32(x[i] / s, 6.0f));
  return scale;
}

DI_BODY void pack_nibbles(const uint8_t* nibbles, int count, uint8_t* packed) {
  for (int i = 0; i < count / 2; ++i) packed[i] = static_cast<uint8_t>(nibbles[2 * i] | nibbles[2 * i + 1] << 4);
}

DI_BODY uint8_t nibble_at(const uint8_t* packed, int64_t i) { return static_cast<uint8_t>(packed[i / 2] >> (i & 1) * 4 & 15); }

DI_BODY void dequantize_q8(const uint8_t* codes, const uint8_t* scales, int width, float* out) {
  for (int b = 0; b < width / kScaleBlock; ++b) {
    const float s = e8m0_to_float(scales[b]);
    for (int i = 0; i < kScaleBlock; ++i) out[b * kScaleBlock + i] = e4m3_to_float(codes[b * kScaleBlock + i]) * s;
  }
}

DI_BODY void dequantize_q4e8(const uint8_t* packed, const uint8_t* scales, int width, float* out) {
  for (int b = 0; b < width / kScaleBlock; ++b) {
    const float s = e8m0_to_float(scales[b]);
    const uint8_t* in = packed + b * kScaleBlock / 2;
    float* to = out + b * kScaleBlock;
    for (int i = 0; i < kScaleBlock / 2; ++i) {
      to[2 * i] = e2m1_to_float(in[i] & 15) * s;
      to[2 * i + 1] = e2m1_to_float(in[i] >> 4) * s;
    }
  }
}

DI_BODY void dequantize_q4e4(const uint8_t* packed, const uint8_t* scales, int width, float* out) {
  for (int b = 0; b < width / kMainBlock; ++b) {
    const float s = e4m3_to_float(scales[b]);
    const uint8_t* in = packed + b * kMainBlock / 2;
    float* to = out + b * kMainBlock;
    for (int i = 0; i < kMainBlock / 2; ++i) {
      to[2 * i] = e2m1_to_float(in[i] & 15) * s;
      to[2 * i + 1] = e2m1_to_float(in[i] >> 4) * s;
    }
  }
}

// PRODUCT (ops.h) takes inputs times input_factor(), weights as weight_code() and blocks as block_scale(): for e4m3 the three
// powers of two cancel. The bits of an e4m3 code, moved to where FP32 has its exponent, are 2^-120 times its value
// (subnormals included), which is the cheapest way to decode it; inputs times 2^80 keep products in range (x below 2^47).
DI_BODY float input_factor(WeightFormat format) { return format == WeightFormat::kF8Tile ? 0x1p80f : 1.0f; }

// One element of a weight without the scale of its block.
DI_BODY float weight_code(const Matrix& w, int64_t row, int64_t column) {
  const int64_t at = row * w.k + column;
  switch (w.format) {
    case WeightFormat::kBf16: return to_float(static_cast<const Bf16*>(w.data)[at]);
    case WeightFormat::kF8Tile: return e4m3_to_float(static_cast<const uint8_t*>(w.data)[at]) * 0x1p-120f;
    case WeightFormat::kFp4: return e2m1_to_float(nibble_at(static_cast<const uint8_t*>(w.data), at));
  }
  return 0.0f;
}

// The factor of a block of 32 columns.
DI_BODY float block_scale(const Matrix& w, int64_t row, int64_t block) {
  const int64_t blocks = w.k / kScaleBlock;
  switch (w.format) {
    case WeightFormat::kBf16: return 1.0f;
    case WeightFormat::kF8Tile: return e8m0_to_float(w.scales[row / kScaleBlock * blocks + block]) * 0x1p40f;
    case WeightFormat::kFp4: return e8m0_to_float(w.scales[row * blocks + block]);
  }
  return 0.0f;
}

DI_BODY void load_bf16(const Bf16* x, int width, float* out) {
  for (int i = 0; i < width; ++i) out[i] = to_float(x[i]);
}

DI_BODY void quantize_block(const QuantizeParams& p, int64_t row, int b) {
  const int64_t at = row * p.width + b * kScaleBlock;
  float block[kScaleBlock];
  load_bf16(p.x + at, kScaleBlock, block);
  p.scales[at / kScaleBlock] = quantize_q8(block, p.codes + at);
}

DI_BODY void quantize_row(const QuantizeParams& p, int64_t row) {
  for (int b = 0; b < p.width / kScaleBlock; ++b) quantize_block(p, row, b);
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
