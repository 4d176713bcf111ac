// cpu/kernels.h - the inner loops worth tuning, as one table of plain functions per instruction set.
//
// Everything else runs the portable bodies. Each set is one file compiled with its own flags; it includes no template or
// inline function that another file could share (see ops/portable/isa.h), and gives the same bits as the portable set.
// Scratch is the caller's.
#pragma once

#include "ops/ops.h"

namespace deepinfer::cpu {

[[gnu::always_inline]] constexpr int64_t padded(int64_t k) { return (k + 15) / 16 * 16; }

// Weights are packed into panels of 16 outputs: one output per lane, blocks of 32 columns one after another, so that PRODUCT
// (ops.h) is a chain of multiply-adds per lane. A block of a panel is 512 bytes of e4m3, 1,024 of BF16, or 16 scales and 256
// bytes of e2m1; the order within is each kernel set's own (Kernels::pack_panel). Outputs and columns beyond the weight's are
// zeros.
inline constexpr int kPanel = 16;
inline constexpr int kBlock = 32;
[[gnu::always_inline]] constexpr int64_t blocks_of(int64_t k) { return (k + kBlock - 1) / kBlock; }
[[gnu::always_inline]] constexpr int64_t block_bytes(WeightFormat format) {
  return format == WeightFormat::kBf16 ? 1024 : format == WeightFormat::kF8Tile ? 512 : 272;
}
[[gnu::always_inline]] constexpr int64_t panel_bytes(const Matrix& w) { return blocks_of(w.k) * block_bytes(w.format); }
[[gnu::always_inline]] constexpr int64_t packed_bytes(const Matrix& w) { return (w.n + kPanel - 1) / kPanel * panel_bytes(w); }

// 32 inputs as whole numbers of 2 * half_unit, cut into signed digits of 8 bits, lowest first; of each eight columns the even
// ones come first. If all inputs are such numbers v and 12 * sum |v| <= 2^24, every partial sum of PRODUCT with e2m1 codes is
// exact in FP32: sums of whole numbers, in any order, are the same bits (docs/deep-dives/cpu-products.md).
struct Digits {
  float half_unit;
  int32_t bias;  // -12 * sum v: tuned sets take 2 * e2m1 + 12, which has no sign
  int32_t num;   // 2 or 3; 0: not exact, these 32 columns go by FP32
  int8_t digit[3][32];
};

// y[r, c] for c in [begin, end): PRODUCT of x[r] and weight row c, then bias, rounding and factor as in MatmulParams.
// Rows of x hold the inputs times input_factor() and are padded with zeros to a multiple of 32. Panels begin at multiples of 16;
// other columns are for the portable set.
struct MatmulTile {
  const float* x;
  int64_t x_stride;
  const Digits* digits;   // the same rows, where the weight is e2m1 and the set has `digitise`; block b of row r lies at
  int64_t digits_stride;  // b * digits_stride + r
  const Bf16* lines;      // where the set has `narrow`: its output, lines as rows, kinds as digits; so many as tiles are cut to
  int64_t line_stride;    // are read behind the last, kPaddingLines at most, and what they hold does not matter
  const uint8_t* kinds;
  int64_t rows;
  Matrix w;
  int64_t begin, end;
  const Bf16* bias;
  void* y;
  int64_t y_stride;
  OutputType y_type;
  float y_scale;
  float* scratch;  // matmul_scratch(w)
};
inline constexpr int64_t kMaxTileRows = 128;    // rows of a tile at most
inline constexpr int64_t kPaddingLines = 7;     // rows are cut evenly into tiles of 16 at most: kMaxTileRows / 16 - 1
inline constexpr int64_t kChunkFloats = 4096;   // weights decoded at once when there are many rows (16 KB)
inline constexpr int64_t kGroups = 4;           // pairs of panels that share what is read of the inputs
inline constexpr int64_t kAhead = 2048;         // bytes of a panel asked for before they are used
inline constexpr int64_t kPortableColumns = 8;  // outputs the portable set decodes at once, over all columns
// A panel packed on the fly or a decoded chunk, and the sums of all rows; or what the portable set decodes.
[[gnu::always_inline]] constexpr int64_t matmul_scratch(const Matrix& w) {
  const int64_t tuned = panel_bytes(w) / 4 + kChunkFloats + kGroups * 2 * kPanel * kMaxTileRows;
  const int64_t portable = kPortableColumns * w.k;
  return tuned > portable ? tuned : portable;
}

// y[r, c] = DOT of x[r] and w[c], both FP32, for c in [begin, end).
struct DotsTile {
  const float* x;  // rows padded to 16
  int64_t x_stride;
  int64_t rows;
  const float* w;  // [outputs, k]
  int k;
  int64_t begin, end;
  float* y;
  int64_t y_stride;
};

// scores[q, j] = DOT(q, k_j) * scale for j < slots; see ops/portable/attention.h for what follows.
struct QueryTile {
  const float* q;  // [queries, width]
  int64_t queries;
  const float* k;  // [slots, width]
  int64_t slots;
  int width;  // multiple of 16
  float scale;
  float* scores;  // [queries, stride]
  int64_t stride;
};

// o[q, d] = (fma over slots ascending of p[q, j] * v[j, d]) * factors[q] for d < width.
struct ValueTile {
  const float* p;        // [queries, stride]
  const float* factors;  // [queries]
  int64_t queries;
  int64_t stride;
  const float* v;  // [slots, v_stride]
  int64_t v_stride;
  int64_t slots;
  int width;    // multiple of 16
  float* sums;  // [kValueQueries, width] scratch, so many at once at most
  Bf16* o;
  int64_t o_stride;
};
inline constexpr int kValueQueries = 8;

// scores[i - begin] of list entries [begin, end) of one row.
struct ScoreTile {
  const SelectParams* select;
  int64_t row;
  int64_t begin, end;
  const float* q;  // [heads, index_dim]
  float* scores;   // of entry `begin`
  float* scratch;  // score_scratch()
};
inline constexpr int kScoreBlock = 64;
// Decoded keys, dot products of a block, queries as digits.
[[gnu::always_inline]] constexpr int64_t score_scratch(int64_t heads, int64_t dim) {
  return kScoreBlock * (dim + heads) + blocks_of(dim) * heads * static_cast<int64_t>(sizeof(Digits) / sizeof(float));
}

// Bodies of one row (ops/portable) in a set's own registers.
struct RowKernels {
  void (*sample)(const SampleParams&, int64_t row, float* scratch);
  void (*quantize)(const QuantizeParams&, int64_t row);
  void (*swiglu_quantize)(const SwigluQuantizeParams&, int64_t row);
  void (*collapse_norm)(const CollapseNormParams&, int64_t row);
  void (*rms_norm)(const RmsNormParams&, int64_t row);
  void (*expand)(const ExpandParams&, int64_t row, int begin, int end);
  void (*engram_gather)(const EngramGatherParams&, int64_t row);
  void (*index_query)(const IndexQueryParams&, int64_t row);
  // Scores to weights of V in place; returns the factor of their sum. `sink` may be null (vision).
  float (*softmax)(float* scores, int64_t window, int64_t slots, const float* sink);
};
extern const RowKernels kPortableRows;
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;

struct Kernels {
  const char* isa;
  const char* needs;
  bool (*supported)();
  void (*matmul)(const MatmulTile&);
  // Outputs [column, column + 16) of w as one panel; null: this set reads weights as stored.
  void (*pack_panel)(const Matrix& w, int64_t column, uint8_t* panel);
  // Blocks of one row, out[b * stride]; null: this set needs no digits.
  void (*digitise)(const float* x, int64_t blocks, Digits* out, int64_t stride);
  // One row as the set's tiles take it with such weights, 32 numbers a block, and what each block is to e2m1 weights,
  // kinds[b * stride]; digits are there for e2m1. Null: it needs none. Without own_class only for e2m1.
  void (*narrow)(WeightFormat format, const float* x, int64_t blocks, const Digits* digits, int64_t stride, Bf16* lines,
                 uint8_t* kinds);
  void (*dots)(const DotsTile&);
  // Does `steps` rounds of independent multiply-adds in registers; returns how many. For measuring limits.
  int64_t (*multiply_adds)(int64_t steps);
  // The same of e4m3 and e2m1 by the unit that is exact for them alone, two digits or tiles; own_class: of all weights. Null:
  // none.
  int64_t (*multiply_fp4)(int64_t steps);
  void (*attend_scores)(const QueryTile&);
  void (*attend_values)(const ValueTile&);
  void (*score)(const ScoreTile&);
  // A packed row as FP32; width is a multiple of its scale block (32 and 16).
  void (*q8_row)(const uint8_t* codes, const uint8_t* scales, int width, float* out);
  void (*q4e4_row)(const uint8_t* packed, const uint8_t* scales, int width, float* out);
  const RowKernels* rows;
  // As multiply_adds(), of e2m1 and e2m1 (index scores) by bytes of one digit; null: by FP32.
  int64_t (*multiply_bytes)(int64_t steps);
  // Called once on every thread before its first product, outside of steps; null: nothing to do.
  void (*begin_thread)() = nullptr;
  bool own_class = false;  // products have other bits (ops.h): never chosen by itself
};

extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512VnniKernels;
extern const Kernels kAvx512GfniKernels;
extern const Kernels kAvx512AmxKernels;
extern const Kernels kAmxKernels;

}  // namespace deepinfer::cpu
