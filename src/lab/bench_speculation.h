// lab/bench_speculation.h - what speculation brings on this machine, and whether that is what its costs promise.
//
// The same requests run without drafts and with each setting, by turns forwards and then backwards, so that a machine that gets
// slower favours nobody; a ratio is the median over such rounds of a setting's speed over that of `off` in the same round. `off`
// and `auto` take part in every round, since a promise hangs on them, the others in the first ones. The gain that was to be
// expected follows from the costs of the same runs: tokens per step * V(R) / (V(B) + D(R)), with V(R) a step without drafts, V(B)
// one with, D(R) a draft pass.
//
// Texts: `easy`, tasks the model was trained for; `hard`, ids without sense; `adversarial`, the easy ones with a drafter that is
// right and then wrong and sure of it, by turns; `mixed`, easy and hard side by side. Each drawn greedily and at temperature 1.
// Threads: one; the host must be otherwise idle.
//
//   FigureReport report("bench decode");
//   DI_CHECK_OK(bench_speculation(*host, {}, report));
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/host.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchSpeculationOptions {
  std::vector<int32_t> streams;  // requests at once; empty = 1, 8, 32 and 64, with `tokens_per_step` 1
  std::string text = "all";      // or one of the texts
  int32_t rounds = 5;            // of `off` and `auto`
  // > 0: instead of the model's drafter one that was told the answers and is right so often that five drafts give so many tokens
  // a step, 1 to 6; for models whose own drafter knows nothing. It costs nothing, and says so: D is near 0. Easy texts only.
  double tokens_per_step = 0;
  std::function<void(size_t done, size_t total, const std::string& what)> progress;
};

// Rows spec/TEXT/greedy|sampled/N/SETTING (tokens/s, ratio against off) with .../gain (ratio against .../predicted),
// .../verified and .../accepted (drafts a step of one sequence, ratio against fixed5), .../accepted_length (tokens of such a
// step, likewise), .../V and .../D (ms). From the drafts of fixed5, decided again: .../N/best75/accepted_length (a quarter of
// each pass is not verified, the least sure ones: what the confidences are worth, whatever rows cost) and
// .../N/cheap_rows/verified and /accepted_length (the schedule with the step costs of a GPU). spec/calibration/PLACE (expected
// calibration error of blocks that the fit has not seen, ratio against the unscaled one). kUnsupported when there is no drafter.
Status bench_speculation(Host& host, const BenchSpeculationOptions& options, FigureReport& report);

}  // namespace deepinfer
