#include "lab/bench_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "host/compressed_file.h"
#include "kvcache/fleet_index.h"
#include "lab/bench_hand_over.h"
#include "lab/load_client.h"
#include "lab/server_process.h"
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

constexpr int kWorkers = 4, kStreams = 64;
constexpr int64_t kSingle = 500, kWhole = 10'000, kStreamed = 2'048;

// The same loads on a server alone and on a router before workers.
class RelayBench {
 public:
  explicit RelayBench(FigureReport& report) : report_(report) {}

  Status run(const std::string& program) {
    DI_TRY(const BenchScript script, BenchScript::create());
    std::vector<std::string> common = {"--port", "0", "-m", script.model(), "--access-log", "off", "--served-model-name",
                                       "bench"};
    const auto with = [&](std::vector<std::string> words) {
      words.insert(words.end(), common.begin(), common.end());
      return words;
    };
    const std::vector<std::string> engine = {"serve", "--store", "off",  "--threads", "1",  "--batch",
                                             "64",    "--queue", "4096", "--context", "512"};
    DI_CHECK_OK(alone_.start(program, with(engine)));
    std::string addresses;
    for (int i = 0; i < kWorkers; ++i) {
      const int port =
          20'000 + static_cast<int>(worker_rank(static_cast<uint64_t>(i), static_cast<size_t>(alone_.port())) % 20'000);
      std::vector<std::string> words = engine;
      words.insert(words.end(), {"--worker-port", fmt::format("{}", port)});
      DI_CHECK_OK(workers_[i].start(program, with(words)));
      addresses += fmt::format("{}127.0.0.1:{}", i == 0 ? "" : ",", port);
    }
    DI_CHECK_OK(router_.start(program, with({"route", "--workers", addresses})));
    DI_CHECK_OK(load(alone_, 8, 500, true));
    DI_CHECK_OK(load(router_, 8, 500, true));
    DI_CHECK_OK(one_answer());
    DI_CHECK_OK(whole_answers());
    return streamed_tokens();
  }

 private:
  static Result<LoadResult> load(ServerProcess& server, int connections, int64_t requests, bool stream) {
    return run_bench_load(server.port(), connections, requests, bench_request(stream));
  }

  // Answers are whole, so that the first token is in the time and not only the head.
  Status one_answer() {
    DI_TRY(const LoadResult alone, load(alone_, 1, kSingle, false));
    DI_TRY(const LoadResult routed, load(router_, 1, kSingle, false));
    const double mine = routed.first_byte(0.5) * 1e3, theirs = alone.first_byte(0.5) * 1e3;
    report_.add({.name = "router/relay/one answer", .value = mine, .unit = "ms", .baseline = "serve", .ratio = mine / theirs});
    report_.add({.name = "router/relay/one answer added", .value = mine - theirs, .unit = "ms"});
    return {};
  }

  Status whole_answers() {
    DI_TRY(const LoadResult alone, load(alone_, kStreams, kWhole, false));
    DI_TRY(const LoadResult routed, load(router_, kStreams, kWhole, false));
    const double mine = static_cast<double>(kWhole) / routed.seconds, theirs = static_cast<double>(kWhole) / alone.seconds;
    report_.add(
        {.name = "router/relay/whole answers", .value = mine, .unit = "requests/s", .baseline = "serve", .ratio = mine / theirs});
    return {};
  }

  Status streamed_tokens() {
    constexpr double kTokens = static_cast<double>(kStreamed) * kBenchTokens * 1e-6;  // for microseconds
    DI_TRY(const double alone_before, alone_.metric(kCpu));
    DI_CHECK_OK(load(alone_, kStreams, kStreamed, true));
    DI_TRY(const double alone_after, alone_.metric(kCpu));
    DI_TRY(const double router_before, router_.metric(kCpu));
    DI_TRY(const double workers_before, workers_cpu());
    DI_CHECK_OK(load(router_, kStreams, kStreamed, true));
    DI_TRY(const double router_after, router_.metric(kCpu));
    DI_TRY(const double workers_after, workers_cpu());
    const double serve = (alone_after - alone_before) / kTokens, router = (router_after - router_before) / kTokens;
    const double all = router + (workers_after - workers_before) / kTokens;
    report_.add({.name = "router/relay/processor time a streamed token",
                 .value = router,
                 .unit = "us",
                 .baseline = "serve",
                 .ratio = router / serve});
    report_.add({.name = "router/relay/processor time added a token", .value = all - serve, .unit = "us"});
    return {};
  }

  Result<double> workers_cpu() {
    double sum = 0;
    for (ServerProcess& worker : workers_) {
      DI_TRY(const double seconds, worker.metric(kCpu));
      sum += seconds;
    }
    return sum;
  }

  static constexpr const char* kCpu = "process_cpu_seconds_total";
  FigureReport& report_;
  ServerProcess alone_, workers_[kWorkers], router_;
};

}  // namespace

Status bench_router(const BenchRouterOptions& options, FigureReport& report) {
  std::vector<TraceRequest> trace;
  if (!options.trace.empty()) {  // first: the rest takes minutes
    DI_TRY(const std::string lines, read_maybe_compressed(options.trace));
    DI_TRY(trace, parse_trace(lines, options.trace));
  }
  bench_decision(options, report);
  DI_CHECK_OK(bench_hand_over(report));
  if (!options.program.empty()) DI_CHECK_OK(RelayBench(report).run(options.program));
  if (options.trace.empty()) return {};
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
