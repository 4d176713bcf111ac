// lab/bench_ops_shapes.h - the matrices of bench ops. Internal to `lab`.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace deepinfer {

// Matrices of the release (model.md section 3): attention and shared experts, head, the two shapes of a routed expert.
struct BenchShape {
  WeightFormat format;
  const char* name;
  int32_t n, k;
};
inline constexpr BenchShape kBenchShapes[] = {{WeightFormat::kF8Tile, "f8", 4608, 5120},
                                              {WeightFormat::kBf16, "bf16", 4608, 5120},
                                              {WeightFormat::kFp4, "fp4", 2304, 5120},
                                              {WeightFormat::kFp4, "fp4", 5120, 2304}};

inline int64_t stored_bytes(const BenchShape& s) {
  const int64_t count = int64_t{s.n} * s.k;
  if (s.format == WeightFormat::kBf16) return count * 2;
  return s.format == WeightFormat::kF8Tile ? count + count / 1024 : count / 2 + count / 32;
}

}  // namespace deepinfer
