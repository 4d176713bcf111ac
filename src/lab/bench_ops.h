// lab/bench_ops.h - how near the products with weights come to the machine's limits.
//
// One row per kernel set, format, shape and number of rows. With one row memory is the limit: as many different weights as
// fill `weight_bytes` are used in turn, so no cache keeps them; the limit is a read-only pass over the same bytes with the same
// threads in the same run. With more rows it is the multiply units: FP32 multiply-adds without any load.
// Threads: one; the machine should be otherwise idle.
//
//   FigureReport report("bench ops");
//   DI_CHECK_OK(bench_ops({}, report));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/figures.h"
#include "ops/device.h"

namespace deepinfer {

struct BenchOpsOptions {
  std::string device = "cpu";  // "cpu": every set this machine runs, but the portable one; "cpu:NAME": that one
  int threads = 0;
  std::vector<int32_t> rows = {1, 6, 64, 512};
  int64_t weight_bytes = int64_t{1} << 30;
  int32_t repeats = 3;  // the best counts
};

// Rows ops/ISA/FORMAT/NxK/ROWS in GB/s (one row) or GFLOP/s, with their limits.
Status bench_ops(const BenchOpsOptions& options, FigureReport& report);
// The same of a GPU, ops/cuda:N/...; multiply units have no limit measured yet. Then ops/cuda:N/experts/NxK/ROWS: weights of
// touched experts per second.
Status bench_ops_gpu(Device& device, const BenchOpsOptions& options, FigureReport& report);
Status bench_ops_experts(Device& device, const BenchOpsOptions& options, double bandwidth, FigureReport& report);

}  // namespace deepinfer
