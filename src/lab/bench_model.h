// lab/bench_model.h - how fast the engine of a Host decodes and prefills.
//
// Rows at context frontiers, never one average. Each figure is the best of `repeats` runs: what disturbs a run on a shared
// machine only makes it slower. The limit of a decode row is the memory's: bytes of weights that its steps read (a CPU counts
// them; else those of experts chosen evenly) over the read bandwidth measured in the same run (weights that fit the cache may
// pass it); on a CPU also that of its multiply units, and of the disk for what was read from there.
// Threads: one; the host must be otherwise idle.
//
//   FigureReport report("bench decode");
//   DI_CHECK_OK(bench_decode(*host, {}, report));
#pragma once

#include <vector>

#include "base/result.h"
#include "host/host.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchModelOptions {
  std::vector<int32_t> streams = {1, 8, 32};        // decode: sequences at once
  std::vector<int32_t> prompts = {128, 512, 2048};  // prefill: tokens
  int32_t tokens = 128;                             // decode: of each answer
  int32_t repeats = 3;
  bool schema = false;  // decode: answers that are held to a JSON Schema, too, in turns with the others
};

// Rows decode/N (tokens/s of all streams together), decode/1/step (ms) and, asked for, decode/N/schema. On a CPU also what the
// steps read and wait for: decode/N/weights, barriers, with_barriers (the limit with a barrier's time for each); of a checkpoint
// larger than memory experts_missed, missed, disk.
// Beside them what `plan` expects with the limits of this run (decode/N/expected, experts_missed/expected), and the limit of each
// product by itself (decode/N/products: "capped by the multiply limit" holds for products, not for a step as a whole).
Status bench_decode(Host& host, const BenchModelOptions& options, FigureReport& report);
// Rows prefill/N (tokens/s; on a CPU the limit is what its multiply units give the products with weights) and
// prefill/N/first_token (ms); prefill/N/expected and products as above.
Status bench_prefill(Host& host, const BenchModelOptions& options, FigureReport& report);

}  // namespace deepinfer
