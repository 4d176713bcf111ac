// lab/bench_router.h - what a placement costs, and what it is worth on recorded traffic.
//
// Rows:
//   router/decision/p50, /p99   match 1,200 page keys (a prompt of 77k tokens) among a million pages of 64 workers and place it;
//   us router/index                memory of that index; MB router/RATE/POLICY/...      with a trace: mean time to the first
//   token (baseline: round_robin), its median and p99, the hit rate, and
//                               tokens computed by the busiest worker over the mean, of the whole trace and of the median minute,
//                               in virtual time: 8 workers of RATE prefill tokens a second, memory for 10 % of the trace's
//                               distinct blocks each, no store
//   router/hand_over            lab/bench_hand_over.h
//   router/relay/...            a router before four workers with scripted models, beside one server of the same model alone:
//   whole answers a
//                               second, the time of one answer of 16 tokens, processor time a streamed token of the router and of
//                               all processes together
// Threads: one.
#pragma once

#include <string>

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchRouterOptions {
  std::string program;  // to run `route` and `serve` of; "": no relay
  std::string trace;    // a trace file (sim/trace.h), .zst too; "": only the decision
  int32_t workers = 64;
  int64_t pages = 1'000'000;
  int32_t keys = 1'200;
  int32_t decisions = 20'000;
};

Status bench_router(const BenchRouterOptions& options, FigureReport& report);

}  // namespace deepinfer
