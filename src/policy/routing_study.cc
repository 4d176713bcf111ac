// The routing algorithms of others over our view of a worker; formulas as cluster.md section 3 has them, constants the
// defaults of their sources.
#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/routing.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 64;

using Workers = std::span<const PrefillView>;

// The ready worker with the least cost(worker, index); ties by the request's hash.
template <typename Cost>
int32_t least(const PromptView& prompt, Workers workers, Cost&& cost) {
  int32_t best = -1;
  double best_cost = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].ready) continue;
    const double c = cost(workers[i], i);
    const bool wins = best < 0 || c < best_cost ||
                      (c == best_cost && worker_rank(prompt.hash, i) > worker_rank(prompt.hash, static_cast<size_t>(best)));
    if (!wins) continue;
    best = static_cast<int32_t>(i);
    best_cost = c;
  }
  return best;
}

// Least and largest of value(worker) over the ready ones.
struct Range {
  double least = std::numeric_limits<double>::infinity(), most = 0;
};
template <typename Value>
Range range_of(Workers workers, Value&& value) {
  Range range;
  for (const PrefillView& worker : workers) {
    if (!worker.ready) continue;
    range.least = std::min(range.least, value(worker));
    range.most = std::max(range.most, value(worker));
  }
  return range;
}

double queued(const PrefillView& worker) { return static_cast<double>(worker.queued_tokens); }
double active(const PrefillView& worker) { return static_cast<double>(worker.active_requests); }
double hit(const PrefillView& worker) { return static_cast<double>(worker.hit_tokens); }

int32_t least_loaded(const PromptView& prompt, Workers workers) {
  return least(prompt, workers, [](const PrefillView& worker, size_t) { return active(worker); });
}

int32_t round_robin(const PromptView& prompt, Workers workers) {
  for (size_t step = 0; step < workers.size(); ++step) {
    const size_t i = static_cast<size_t>((prompt.number + step) % workers.size());
    if (workers[i].ready) return static_cast<int32_t>(i);
  }
  return -1;
}

int32_t longest_match(const PromptView& prompt, Workers workers) {
  return least(prompt, workers, [](const PrefillView& worker, size_t) { return -hit(worker); });
}

int32_t kv_aware(const PromptView& prompt, Workers workers) {
  constexpr double kMayMiss = 2000;
  const double best = range_of(workers, hit).most;
  if (best < static_cast<double>(prompt.tokens) - kMayMiss) return round_robin(prompt, workers);
  return longest_match(prompt, workers);
}

int32_t session_ring(const PromptView& prompt, Workers workers) {
  PromptView of_session = prompt;
  of_session.hash = prompt.session;
  return least(of_session, workers, [](const PrefillView&, size_t) { return 0.0; });
}

// A prefix may be copied from its best holder when that holds more than kThreshold times as much.
int32_t mooncake(const PromptView& prompt, Workers workers) {
  constexpr double kThreshold = 2;
  const double best = range_of(workers, hit).most;
  return least(prompt, workers, [&](const PrefillView& worker, size_t) {
    const bool copies = worker.load_us_per_token > 0 && best > kThreshold * hit(worker);
    const double prefix = copies ? best : hit(worker);
    const double transfer_us = copies ? (best - hit(worker)) * worker.load_us_per_token : 0;
    return transfer_us + queued(worker) * worker.us_per_token +
           (static_cast<double>(prompt.tokens) - prefix) * worker.us_per_token;
  });
}

int32_t dynamo(const PromptView& prompt, Workers workers) {
  constexpr double kDecay = 0.0, kDevice = 1.0, kActive = 0.0;
  const double least_queued = range_of(workers, queued).least;
  const double blocks = std::max(1.0, static_cast<double>(prompt.tokens) / kBlock);
  return least(prompt, workers, [&](const PrefillView& worker, size_t) {
    const double decay = 1 / (1 + kDecay * ((queued(worker) - least_queued) / kBlock) / blocks);
    const double credit = kDevice * decay * hit(worker) / kBlock;
    const double prefill_blocks = (queued(worker) + static_cast<double>(prompt.tokens)) / kBlock;
    return std::max(0.0, prefill_blocks - credit) + static_cast<double>(worker.held_tokens) / kBlock + kActive * active(worker);
  });
}

int32_t sglang(const PromptView& prompt, Workers workers) {
  constexpr double kAbsolute = 64, kRelative = 1.5, kMatch = 0.3;
  const Range load = range_of(workers, active);
  if (load.most - load.least > kAbsolute && load.most > kRelative * load.least) return least_loaded(prompt, workers);
  const double best = range_of(workers, hit).most;
  if (best > kMatch * static_cast<double>(prompt.tokens)) return longest_match(prompt, workers);
  return least_loaded(prompt, workers);
}

// Scorers prefix, queue and KV use, weights 3, 2, 2; workers far behind the best match drop out unless they answer sooner by far.
int32_t llm_d(const PromptView& prompt, Workers workers) {
  constexpr double kKeep = 0.80, kSlackUs = 5e6;
  const double tokens = std::max(1.0, static_cast<double>(prompt.tokens));
  const double best = range_of(workers, hit).most;
  const Range queue = range_of(workers, active);
  const auto first_token_us = [&](const PrefillView& worker) { return predict_first_token(prompt, worker).first_token_us; };
  const double soonest = range_of(workers, first_token_us).least;
  const auto kept = [&](const PrefillView& worker) { return best > 0 && hit(worker) >= kKeep * best; };
  bool sticky = false;
  for (const PrefillView& worker : workers) {
    sticky |= worker.ready && kept(worker) && best >= kKeep * tokens && first_token_us(worker) - soonest <= kSlackUs;
  }
  return least(prompt, workers, [&](const PrefillView& worker, size_t) {
    const double prefix = hit(worker) / tokens;
    const double kv = worker.capacity_tokens > 0
                          ? 1 - static_cast<double>(worker.held_tokens) / static_cast<double>(worker.capacity_tokens)
                          : 1.0;
    const double short_queue = queue.most > queue.least ? (queue.most - active(worker)) / (queue.most - queue.least) : 1.0;
    const double score = 3 * prefix + 2 * short_queue + 2 * kv;
    return (sticky && !kept(worker) ? 1e3 : 0) - score;
  });
}

// Exploit: more shared than new, then the least loaded holder. Explore: the least work in the window with this prompt's added.
int32_t preble(const PromptView& prompt, Workers workers) {
  const double best = range_of(workers, hit).most;
  const auto work_us = [](const PrefillView& worker) {
    return static_cast<double>(worker.recent_tokens + worker.queued_tokens) * worker.us_per_token;
  };
  if (static_cast<double>(prompt.tokens) - best < best) {
    return least(prompt, workers, [&](const PrefillView& worker, size_t) {
      return hit(worker) >= best ? work_us(worker) : std::numeric_limits<double>::infinity();
    });
  }
  return least(prompt, workers, [&](const PrefillView& worker, size_t) {
    return work_us(worker) + (static_cast<double>(prompt.tokens) - hit(worker)) * worker.us_per_token;
  });
}

}  // namespace

int32_t choose_studied(RoutingPolicy policy, const PromptView& prompt, Workers workers) {
  switch (policy) {
    case RoutingPolicy::kRoundRobin: return round_robin(prompt, workers);
    case RoutingPolicy::kLeastLoaded: return least_loaded(prompt, workers);
    case RoutingPolicy::kPrefix: return longest_match(prompt, workers);
    case RoutingPolicy::kKvAware: return kv_aware(prompt, workers);
    case RoutingPolicy::kSession: return session_ring(prompt, workers);
    case RoutingPolicy::kMooncake: return mooncake(prompt, workers);
    case RoutingPolicy::kDynamo: return dynamo(prompt, workers);
    case RoutingPolicy::kSglang: return sglang(prompt, workers);
    case RoutingPolicy::kLlmD: return llm_d(prompt, workers);
    case RoutingPolicy::kPreble: return preble(prompt, workers);
    case RoutingPolicy::kDefault: break;
  }
  return place_prefill(policy, prompt, workers).worker;
}

}  // namespace deepinfer
