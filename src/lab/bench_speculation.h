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
  std::vector<int32_t> streams = {1, 8, 32};
  int32_t tokens = 96;  // of each answer at most
  int32_t repeats = 3;
  // > 0: instead of the model's drafter one that was told the answers and is right so often that five drafts give so many tokens
  // a step, 1 to 6; for models whose own drafter knows nothing. It costs nothing, and says so: D is near 0.
  double tokens_per_step = 0;
};

// Rows spec/TEXT/N/SETTING (tokens/s, ratio against off) with .../gain (ratio against the predicted one), .../tokens_per_step,
// .../verified and .../accepted (drafts a sequence and step, ratio against fixed5), .../V and .../D (ms). kUnsupported when there
// is no drafter.
Status bench_speculation(Host& host, const BenchSpeculationOptions& options, FigureReport& report);

}  // namespace deepinfer
