// sim/prefill_fleet.h - prompts of a trace placed over workers that compute one after another.
//
// The router places each request when it arrives, over what it knows: pages it has placed or was told of, tokens still to be
// computed. A worker computes what its own memory lacks when the request's turn comes; pages it evicts are told to the router at
// once.
//
//   const FleetFigures figures = simulate_prefill(trace, {.policy = RoutingPolicy::kDefault, .workers = 8, .tokens_per_s = 5000,
//   .worker_blocks = 18'279});
#pragma once

#include <cstdint>
#include <vector>

#include "policy/routing.h"
#include "sim/trace.h"

namespace deepinfer {

struct FleetOptions {
  RoutingPolicy policy = RoutingPolicy::kDefault;
  int32_t workers = 8;
  double tokens_per_s = 5000;    // of each worker
  int64_t worker_blocks = 1000;  // of kTraceBlock tokens in each worker's memory
};

struct FleetFigures {
  double mean_first_token_s = 0, median_first_token_s = 0, p99_first_token_s = 0;
  double hit_rate = 0;                     // of prompt tokens
  double max_over_mean_computed = 0;       // tokens computed by the busiest worker, over the mean of all, whole trace
  double median_minute_max_over_mean = 0;  // the same in each minute of work; the median of the minutes
  int64_t computed_tokens = 0;
};

FleetFigures simulate_prefill(const std::vector<TraceRequest>& trace, const FleetOptions& options);

}  // namespace deepinfer
