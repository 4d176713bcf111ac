// ops/portable/matmul.h - matrix products: the definition of one output element, and how a result is stored.
#pragma once

#include "ops/portable/dot.h"
#include "ops/portable/quant.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

// bias, then round, then the optional factor (ops.h, MatmulParams).
DI_BODY void store_matmul(const MatmulParams& p, int64_t row, int64_t column, float value) {
  if (p.bias) value += to_float(p.bias[column]);
  if (p.y_type == OutputType::kF32) {
    static_cast<float*>(p.y)[row * p.y_stride + column] = value * p.y_scale;
  } else {
    static_cast<Bf16*>(p.y)[row * p.y_stride + column] = to_bf16(round_bf16(value) * p.y_scale);
  }
}

DI_BODY float q8_at(const uint8_t* codes, const uint8_t* scales, int64_t i) {
  return e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kScaleBlock]);
}

// One output in PRODUCT order (ops.h): x is a function of the column.
template <class X>
DI_BODY float product_of(const Matrix& w, int64_t row, X x) {
  const float factor = input_factor(w.format);
  float sum = 0.0f;
  for (int begin = 0; begin < w.k; begin += kScaleBlock) {
    const int end = begin + kScaleBlock < w.k ? begin + kScaleBlock : w.k;
    float t = 0.0f;
    for (int i = begin; i < end; ++i) t = fma32(x(i) * factor, weight_code(w, row, i), t);
    sum = fma32(t, block_scale(w, row, begin / kScaleBlock), sum);
  }
  return sum;
}

// The definition; tuned kernels give the same bits.
DI_BODY float matmul_element(const MatmulParams& p, int64_t row, int64_t column) {
  const int64_t first = column / (p.w.n / p.groups) * p.w.k;
  if (p.x) return product_of(p.w, column, [&](int i) { return to_float(p.x[row * p.x_stride + first + i]); });
  const int64_t at = row * p.groups * p.w.k + first;
  return product_of(p.w, column, [&](int i) { return q8_at(p.codes, p.scales, at + i); });
}

DI_BODY float grouped_matmul_element(const GroupedMatmulParams& p, int64_t pair, int64_t column) {
  int expert = 0;
  while (p.offsets[expert + 1] <= pair) ++expert;
  const Matrix& w = p.weights[expert];
  const int64_t at = (p.pair_row ? p.pair_row[pair] : pair) * w.k;
  return product_of(w, column, [&](int i) { return q8_at(p.codes, p.scales, at + i); });
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
