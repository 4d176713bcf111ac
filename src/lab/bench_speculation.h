// lab/bench_speculation.h - what speculation brings on this machine, and whether that is what its costs promise.
//
// For each number of streams and kind of text the same requests run without drafts, with 1 to 5 verified each step, and with
// the schedules, in turns within one run. Of each the best of `repeats` runs counts. The gain that was to be expected follows
// from the costs of the same runs: tokens per step * V(R) / (V(B) + D(R)), with V(R) a step without drafts, V(B) one with, D(R)
// a draft pass.
// Threads: one; the host must be otherwise idle.
//
//   FigureReport report("bench decode");
//   DI_CHECK_OK(bench_speculation(*host, {}, report));
#pragma once

#include <vector>

#include "base/result.h"
#include "host/host.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchSpeculationOptions {
  std::vector<int32_t> streams = {1, 8};
  int32_t tokens = 96;  // of each answer at most
  int32_t repeats = 3;
};

// Rows spec/TEXT/N/SETTING (tokens/s, ratio against off) with .../gain (ratio against the predicted one), .../tokens_per_step,
// .../V and .../D (ms). kUnsupported when the model has no drafter.
Status bench_speculation(Host& host, const BenchSpeculationOptions& options, FigureReport& report);

}  // namespace deepinfer
