#include "lab/bench_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "host/compressed_file.h"
#include "kvcache/fleet_index.h"
#include "policy/routing.h"
#include "sim/prefill_fleet.h"

namespace deepinfer {
namespace {

constexpr int64_t kPageTokens = 64;

// Page `depth` of conversation `chain`; a prompt is such a chain's start and then pages that nobody has.
PageKey page_of(uint64_t chain, uint64_t depth) { return {worker_rank(chain, static_cast<size_t>(depth)), chain}; }

void key_prompt(uint64_t chain, int32_t known, uint64_t fresh, std::vector<PageKey>& keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = page_of(i < static_cast<size_t>(known) ? chain : ~fresh, i);
  }
}

void fill(const BenchRouterOptions& options, FleetIndex& fleet, uint64_t chains) {
  std::vector<PageKey> keys(static_cast<size_t>(options.keys));
  for (uint64_t chain = 0; chain < chains; ++chain) {
    key_prompt(chain, options.keys, 0, keys);
    // Hot prefixes lie on several workers.
    for (uint64_t copy = 0; copy <= chain % 3; ++copy)
      fleet.add(static_cast<int32_t>(worker_rank(chain, 1'000'000 + copy) % static_cast<uint64_t>(options.workers)), keys);
  }
}

void bench_decision(const BenchRouterOptions& options, FigureReport& report) {
  FleetIndex fleet(options.workers);
  const uint64_t chains = static_cast<uint64_t>(options.pages / options.keys + 1);
  fill(options, fleet, chains);
  std::vector<PageKey> keys(static_cast<size_t>(options.keys));
  std::vector<int32_t> held(static_cast<size_t>(options.workers));
  std::vector<PrefillView> views(held.size());
  std::vector<double> us;
  int64_t placed = 0;
  for (int32_t i = 0; i < options.decisions; ++i) {
    const uint64_t draw = worker_rank(static_cast<uint64_t>(i), 77);
    key_prompt(draw % chains, static_cast<int32_t>((draw >> 32) % static_cast<uint64_t>(options.keys + 1)), draw, keys);
    const auto start = std::chrono::steady_clock::now();
    fleet.match(keys, held);
    for (size_t w = 0; w < views.size(); ++w) {
      views[w].hit_tokens = held[w] * kPageTokens;
      views[w].queued_tokens = static_cast<int64_t>(worker_rank(draw, w) % 50'000);
    }
    placed += place_prefill(RoutingPolicy::kDefault, {.tokens = options.keys * kPageTokens, .hash = draw}, views).worker >= 0;
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(us.begin(), us.end());
  report.add({.name = "router/decision/p50", .value = us[us.size() / 2], .unit = "us"});
  report.add({.name = "router/decision/p99", .value = us[us.size() * 99 / 100], .unit = "us"});
  report.add({.name = "router/decision/placed", .value = static_cast<double>(placed), .unit = "prompts"});
  report.add({.name = "router/index", .value = static_cast<double>(fleet.memory_bytes()) / 1e6, .unit = "MB"});
  report.add({.name = "router/index/pages", .value = static_cast<double>(fleet.num_pages()), .unit = "pages"});
}

void add_figures(const std::string& name, const FleetFigures& figures, const FleetFigures& in_turn, FigureReport& report) {
  report.add({.name = name + "/mean",
              .value = figures.mean_first_token_s,
              .unit = "s",
              .baseline = "round_robin",
              .ratio = in_turn.mean_first_token_s / figures.mean_first_token_s});
  report.add({.name = name + "/median", .value = figures.median_first_token_s, .unit = "s"});
  report.add({.name = name + "/p99", .value = figures.p99_first_token_s, .unit = "s"});
  report.add({.name = name + "/hits", .value = figures.hit_rate, .unit = "of tokens"});
  report.add({.name = name + "/busiest", .value = figures.max_over_mean_computed, .unit = "x mean"});
  report.add({.name = name + "/busiest_minute", .value = figures.median_minute_max_over_mean, .unit = "x mean"});
}

}  // namespace

Status bench_router(const BenchRouterOptions& options, FigureReport& report) {
  bench_decision(options, report);
  if (options.trace.empty()) return {};
  DI_TRY(const std::string lines, read_maybe_compressed(options.trace));
  DI_TRY(const std::vector<TraceRequest> trace, parse_trace(lines, options.trace));
  const int64_t blocks = count_distinct_blocks(trace) / 10;
  for (const int32_t rate : {5'000, 20'000}) {
    FleetOptions fleet{.policy = RoutingPolicy::kRoundRobin, .tokens_per_s = static_cast<double>(rate), .worker_blocks = blocks};
    const FleetFigures in_turn = simulate_prefill(trace, fleet);
    for (size_t i = 0; i < std::size(kRoutingPolicyNames); ++i) {
      fleet.policy = static_cast<RoutingPolicy>(i);
      add_figures(fmt::format("router/{}/{}", rate, kRoutingPolicyNames[i]), simulate_prefill(trace, fleet), in_turn, report);
    }
  }
  return {};
}

}  // namespace deepinfer
