// lab/bench_ops_shapes.h - the matrices of bench ops. Internal to `lab`.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"
#include "ops/portable/quant.h"

namespace deepinfer {

// Matrices of the release (model.md section 3): attention and shared experts, what stays BF16, the two shapes of a routed expert.
struct BenchShape {
  WeightFormat format;
  const char* name;
  int32_t n, k;
};
inline constexpr BenchShape kBenchShapes[] = {{WeightFormat::kF8Tile, "f8", 4608, 5120},
                                              {WeightFormat::kBf16, "bf16", 4608, 5120},
                                              {WeightFormat::kFp4, "fp4", 2304, 5120},
                                              {WeightFormat::kFp4, "fp4", 5120, 2304}};

// Of a weight as a checkpoint has it, scales included.
inline int64_t stored_bytes(WeightFormat format, int64_t n, int64_t k) {
  const int64_t count = n * k;
  if (format == WeightFormat::kBf16) return count * 2;
  return format == WeightFormat::kF8Tile ? count + count / 1024 : count / 2 + count / 32;
}
inline int64_t stored_bytes(const BenchShape& s) { return stored_bytes(s.format, s.n, s.k); }

// Inputs as a layer's norm leaves them: normal, quantised in blocks of 32; the kernels' way depends on the numbers.
struct BenchInputs {
  std::vector<uint8_t> codes, scales;
};
inline BenchInputs bench_inputs(int64_t rows, int64_t k) {
  BenchInputs out = {std::vector<uint8_t>(static_cast<size_t>(rows * k)), {}};
  uint32_t word = 1;
  for (size_t at = 0; at < out.codes.size(); at += kScaleBlock) {
    float block[kScaleBlock] = {};
    for (float& x : block) {
      for (int i = 0; i < 12; ++i) x += static_cast<float>((word = word * 1664525 + 1013904223) >> 8) * 0x1p-24f - 0.5f;
    }
    out.scales.push_back(quantize_q8(block, &out.codes[at]));
  }
  return out;
}

}  // namespace deepinfer
