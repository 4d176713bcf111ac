#include "sim/prefill_fleet.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>

#include "kvcache/fleet_index.h"
#include "sim/block_cache.h"

namespace deepinfer {
namespace {

constexpr double kMinuteUs = 60e6;

PageKey key_of(uint32_t block) { return {worker_rank(block, 0), block}; }

struct Job {
  const TraceRequest* request;
  int64_t predicted_tokens;  // to compute, as the router believed
};

struct Worker {
  explicit Worker(int64_t blocks) : cache(blocks) {}
  BlockCache cache;
  std::deque<Job> waiting;
  int64_t waiting_tokens = 0;  // predicted, over `waiting`
  double free_at_us = 0;
  int64_t computed_tokens = 0;
  std::vector<std::pair<double, int64_t>> recent;  // when started, tokens: a window of three minutes
  size_t recent_first = 0;
  int64_t recent_tokens = 0;
};

class Fleet {
 public:
  Fleet(const std::vector<TraceRequest>& trace, const FleetOptions& options)
      : trace_(trace),
        options_(options),
        us_per_token_(1e6 / options.tokens_per_s),
        index_(options.workers),
        workers_(static_cast<size_t>(options.workers), Worker(options.worker_blocks)),
        views_(workers_.size()),
        held_(workers_.size()) {}

  FleetFigures run() {
    for (size_t i = 0; i < trace_.size(); ++i) {
      for (size_t w = 0; w < workers_.size(); ++w) work_until(w, trace_[i].arrival_us);
      place(trace_[i], i);
    }
    for (size_t w = 0; w < workers_.size(); ++w) work_until(w, std::numeric_limits<double>::infinity());
    return figures();
  }

 private:
  void name_blocks(const std::vector<uint32_t>& blocks) {
    keys_.clear();
    for (const uint32_t block : blocks) keys_.push_back(key_of(block));
  }

  // At least the last token is computed, for its logits.
  static int64_t hit_tokens(int64_t blocks, const TraceRequest& request) {
    return std::min(blocks * kTraceBlock, request.input_tokens - 1);
  }

  // The trace names no sessions. Its first block is the same system prompt in all requests, the second tells conversations apart.
  static uint64_t session_of(const TraceRequest& request) {
    return request.blocks[std::min<size_t>(1, request.blocks.size() - 1)];
  }

  void place(const TraceRequest& request, size_t number) {
    name_blocks(request.blocks);
    index_.match(keys_, held_);
    for (size_t w = 0; w < workers_.size(); ++w) views_[w] = view_of(workers_[w], request, held_[w]);
    const uint64_t hash = worker_rank(number, 1);
    const Placement placed =
        place_prefill(options_.policy,
                      {.tokens = request.input_tokens, .hash = hash, .session = session_of(request), .number = number}, views_);
    const size_t chosen = static_cast<size_t>(placed.worker);
    const int64_t predicted = request.input_tokens - views_[chosen].hit_tokens;
    workers_[chosen].waiting.push_back({&request, predicted});
    workers_[chosen].waiting_tokens += predicted;
    index_.promise(placed.worker, keys_);
  }

  PrefillView view_of(Worker& worker, const TraceRequest& request, int32_t held) {
    const double now_us = request.arrival_us;
    while (worker.recent_first < worker.recent.size() && worker.recent[worker.recent_first].first < now_us - 3 * kMinuteUs)
      worker.recent_tokens -= worker.recent[worker.recent_first++].second;
    const double busy_us = std::max(0.0, worker.free_at_us - now_us);
    return {.hit_tokens = hit_tokens(held, request),
            .queued_tokens = worker.waiting_tokens + static_cast<int64_t>(busy_us / us_per_token_),
            .active_requests = static_cast<int64_t>(worker.waiting.size()) + (busy_us > 0 ? 1 : 0),
            .recent_tokens = worker.recent_tokens,
            .us_per_token = us_per_token_};
  }

  // Starts what can start before `now_us`.
  void work_until(size_t w, double now_us) {
    Worker& worker = workers_[w];
    while (!worker.waiting.empty()) {
      const Job job = worker.waiting.front();
      const double start_us = std::max(worker.free_at_us, job.request->arrival_us);
      if (start_us > now_us) return;
      worker.waiting.pop_front();
      worker.waiting_tokens -= job.predicted_tokens;
      compute(worker, static_cast<int32_t>(w), *job.request, start_us);
    }
  }

  void compute(Worker& worker, int32_t w, const TraceRequest& request, double start_us) {
    const int64_t hit = hit_tokens(worker.cache.match(request.blocks), request);
    const int64_t tokens = request.input_tokens - hit;
    worker.free_at_us = start_us + static_cast<double>(tokens) * us_per_token_;
    worker.computed_tokens += tokens;
    worker.recent.emplace_back(start_us, tokens);
    worker.recent_tokens += tokens;
    hit_ += hit;
    first_token_us_.push_back(worker.free_at_us - request.arrival_us);
    count_minutes(w, start_us, worker.free_at_us);
    added_.clear();
    removed_.clear();
    worker.cache.use(request.blocks, added_, removed_);
    name_blocks(request.blocks);
    index_.withdraw(w, keys_);
    name_blocks(added_);
    index_.add(w, keys_);
    name_blocks(removed_);
    index_.remove(w, keys_);
  }

  void count_minutes(int32_t w, double start_us, double end_us) {
    const size_t last = static_cast<size_t>(end_us / kMinuteUs);
    if (minutes_.size() <= last) minutes_.resize(last + 1, std::vector<double>(workers_.size(), 0.0));
    for (size_t m = static_cast<size_t>(start_us / kMinuteUs); m <= last; ++m) {
      const double from = std::max(start_us, static_cast<double>(m) * kMinuteUs);
      const double to = std::min(end_us, static_cast<double>(m + 1) * kMinuteUs);
      minutes_[m][static_cast<size_t>(w)] += (to - from) / us_per_token_;
    }
  }

  static double max_over_mean(const std::vector<double>& values) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    if (sum <= 0) return 1;
    return *std::max_element(values.begin(), values.end()) * static_cast<double>(values.size()) / sum;
  }

  static double quantile(std::vector<double>& values, double share) {
    if (values.empty()) return 0;
    const size_t at = std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
    return values[at];
  }

  FleetFigures figures() {
    FleetFigures out;
    std::vector<double> computed, by_minute;
    for (const Worker& worker : workers_) {
      computed.push_back(static_cast<double>(worker.computed_tokens));
      out.computed_tokens += worker.computed_tokens;
    }
    for (const auto& minute : minutes_) by_minute.push_back(max_over_mean(minute));
    const double count = static_cast<double>(std::max<size_t>(first_token_us_.size(), 1));
    out.mean_first_token_s = std::accumulate(first_token_us_.begin(), first_token_us_.end(), 0.0) / count / 1e6;
    out.median_first_token_s = quantile(first_token_us_, 0.5) / 1e6;
    out.p99_first_token_s = quantile(first_token_us_, 0.99) / 1e6;
    out.hit_rate = static_cast<double>(hit_) / static_cast<double>(std::max<int64_t>(hit_ + out.computed_tokens, 1));
    out.max_over_mean_computed = max_over_mean(computed);
    out.median_minute_max_over_mean = quantile(by_minute, 0.5);
    return out;
  }

  const std::vector<TraceRequest>& trace_;
  const FleetOptions options_;
  const double us_per_token_;
  FleetIndex index_;
  std::vector<Worker> workers_;
  std::vector<PrefillView> views_;
  std::vector<int32_t> held_;
  std::vector<PageKey> keys_;
  std::vector<uint32_t> added_, removed_;
  std::vector<std::vector<double>> minutes_;  // tokens computed, by worker
  std::vector<double> first_token_us_;
  int64_t hit_ = 0;
};

}  // namespace

FleetFigures simulate_prefill(const std::vector<TraceRequest>& trace, const FleetOptions& options) {
  return Fleet(trace, options).run();
}

}  // namespace deepinfer
