#include "cpu/kernels.h"
#include "ops/portable/bodies.h"

namespace deepinfer::cpu {
namespace {

void store(const MatmulTile& t, int64_t row, int64_t column, float value) {
  MatmulParams p = {};
  p.bias = t.bias;
  p.y = t.y;
  p.y_stride = t.y_stride;
  p.y_type = t.y_type;
  p.y_scale = t.y_scale;
  store_matmul(p, row, column, value);
}

// Eight outputs side by side, for the compiler's vectors.
constexpr int kColumns = kPortableColumns;

void matmul_columns(const MatmulTile& t, int64_t column, int64_t count) {
  const int64_t k = t.w.k;
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < kColumns; ++c) t.scratch[i * kColumns + c] = c < count ? weight_code(t.w, column + c, i) : 0.0f;
  }
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* x = t.x + r * t.x_stride;
    float sum[kColumns] = {};
    for (int64_t begin = 0; begin < k; begin += kBlock) {
      const int64_t end = begin + kBlock < k ? begin + kBlock : k;
      float part[kColumns] = {};
      for (int64_t i = begin; i < end; ++i) {
        for (int c = 0; c < kColumns; ++c) part[c] = fma32(x[i], t.scratch[i * kColumns + c], part[c]);
      }
      for (int64_t c = 0; c < count; ++c) sum[c] = fma32(part[c], block_scale(t.w, column + c, begin / kBlock), sum[c]);
    }
    for (int64_t c = 0; c < count; ++c) store(t, r, column + c, sum[c]);
  }
}

void matmul(const MatmulTile& t) {
  for (int64_t c = t.begin; c < t.end; c += kColumns) matmul_columns(t, c, t.end - c < kColumns ? t.end - c : kColumns);
}

void dots(const DotsTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int64_t c = t.begin; c < t.end; ++c) t.y[r * t.y_stride + c] = dot(t.x + r * t.x_stride, t.w + c * t.k, t.k);
  }
}

int64_t multiply_adds(int64_t steps) {
  constexpr int kChains = 64;
  float sums[kChains] = {};
  for (int64_t s = 0; s < steps; ++s) {
    for (float& sum : sums) sum = fma32(sum, 0.999f, 0.999f);
  }
  float all = 0;
  for (const float sum : sums) all += sum;
  return all == 0.125f ? 0 : steps * kChains;
}

void attend_scores(const QueryTile& t) {
  for (int64_t q = 0; q < t.queries; ++q) {
    for (int64_t j = 0; j < t.slots; ++j)
      t.scores[q * t.stride + j] = dot(t.q + q * t.width, t.k + j * t.width, t.width) * t.scale;
  }
}

void attend_values(const ValueTile& t) {
  for (int64_t q = 0; q < t.queries; ++q) {
    for (int d = 0; d < t.width; ++d) {
      float sum = 0.0f;
      for (int64_t j = 0; j < t.slots; ++j) sum = fma32(t.p[q * t.stride + j], t.v[j * t.v_stride + d], sum);
      t.o[q * t.o_stride + d] = to_bf16(sum * t.factors[q]);
    }
  }
}

void score(const ScoreTile& t) {
  const SelectParams& p = *t.select;
  const int dim = p.view.index_dim;
  for (int64_t i = t.begin; i < t.end; ++i) {
    const IndexKey key = index_key(p.view, p.slots[t.row], listed_entry(p, t.row, i));
    dequantize_q4e8(key.codes, key.scales, dim, t.scratch);
    float sum = 0.0f;
    for (int h = 0; h < p.heads; ++h) {
      sum = fold_score(sum, to_float(p.w[t.row * p.heads + h]), dot(t.q + h * dim, t.scratch, dim));
    }
    t.scores[i - t.begin] = sum;
  }
}

void q8_row(const uint8_t* codes, const uint8_t* scales, int width, float* out) { dequantize_q8(codes, scales, width, out); }
void q4e4_row(const uint8_t* packed, const uint8_t* scales, int width, float* out) {
  dequantize_q4e4(packed, scales, width, out);
}

}  // namespace

const RowKernels kPortableRows = {[](const SampleParams& p, int64_t row, float* scratch) { sample_row(p, row, scratch); },
                                  quantize_row,
                                  swiglu_quantize_row,
                                  collapse_norm_row,
                                  rms_norm_row,
                                  expand_range,
                                  engram_gather_row,
                                  index_query_row,
                                  [](float* scores, int64_t window, int64_t slots, const float* sink) {
                                    return sink ? softmax_with_sink(scores, window, slots, *sink) : softmax(scores, slots);
                                  }};

const Kernels kPortableKernels = {"portable",
                                  "x86-64-v3, as the whole program",
                                  [] { return true; },
                                  matmul,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  dots,
                                  multiply_adds,
                                  nullptr,
                                  attend_scores,
                                  attend_values,
                                  score,
                                  q8_row,
                                  q4e4_row,
                                  &kPortableRows,
                                  nullptr};

}  // namespace deepinfer::cpu
