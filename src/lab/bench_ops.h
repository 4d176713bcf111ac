// lab/bench_ops.h - how near the products with weights come to the machine's limits.
//
// One row per kernel set, format, shape and number of rows. As many different weights as fill `weight_bytes` are used in turn, so
// no cache keeps them. The limit is the slower of two measured in the same run: a read-only pass over memory with the same
// threads, and multiply-adds of the best exact unit without any load. Rows of routed experts follow: ops/DEVICE/experts/NxK/ROWS;
// then the others.
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
  std::vector<int32_t> rows = {1, 6, 8, 64, 512};
  int64_t weight_bytes = int64_t{1} << 30;
  int32_t repeats = 3;  // the best counts
  std::string only;     // rows whose names have this in them; empty = all
};

// Rows ops/ISA/FORMAT/NxK/ROWS in GB/s (one row) or GFLOP/s, with their limits; of 6 and 8 rows also the time by that of one.
Status bench_ops(const BenchOpsOptions& options, FigureReport& report);
// The same of a GPU, ops/cuda:N/...; multiply units have no limit measured yet. Then ops/cuda:N/experts/NxK/ROWS: weights of
// touched experts per second.
Status bench_ops_gpu(Device& device, const BenchOpsOptions& options, FigureReport& report);
// Rows ops/ISA/NAME/ROWS of what is no product with a weight: select, attention and others of a step. Limits: what they read,
// from memory, and what they multiply; those that stay in caches may pass the first.
struct RowLimits {
  double bandwidth, multiply, scores;  // bytes and FLOPs a second; FLOPs of index scores
};
Status bench_ops_rows(Device& device, const BenchOpsOptions& options, const RowLimits& limits, FigureReport& report);
// On a CPU `multiply` FLOPs a second are a limit beside the bandwidth; 0 = not measured.
Status bench_ops_experts(Device& device, const BenchOpsOptions& options, double bandwidth, double multiply, FigureReport& report);

}  // namespace deepinfer
