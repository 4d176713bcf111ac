// policy/routing.h - which worker computes a prompt, and which one decodes it.
//
// What the router knows goes in as plain data, one view per worker; out comes a choice with its predicted time. `default_`
// is ours (cluster.md section 4): predicted time to the first token, loading from a shared store where that is faster, and what
// the placement makes the workers compute (decision 0023). The others stand beside it for study (cluster.md section 3, each after
// the source it names), over the same view, so that the router and the simulator run the same code. Promise: a worker that is not
// ready is never chosen, however good its match; equal views give equal choices; the work is one pass or a few over the workers,
// without allocation. Threads: pure.
//
//   Placement placed = place_prefill(RoutingPolicy::kDefault, {.tokens = 77'000, .hash = id_hash}, views);
//   if (placed.worker < 0) ...   // nobody is ready
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace deepinfer {

enum class RoutingPolicy {
  kDefault,
  kRoundRobin,
  kLeastLoaded,
  kPrefix,    // the longest match
  kKvAware,   // vLLM production-stack: the longest match, unless too much of the prompt is missing
  kSession,   // its session ring, as rendezvous hashing
  kMooncake,  // Conductor, FAST'25, algorithm 1
  kDynamo,    // KV router: least cost in blocks
  kSglang,    // gateway: balance, then match
  kLlmD,      // weighted scorers
  kPreble,    // E2: exploit or explore
};

inline constexpr std::string_view kRoutingPolicyNames[] = {
    "default", "round_robin", "least_loaded", "prefix", "kv_aware", "session", "mooncake", "dynamo", "sglang", "llm_d", "preble"};
std::optional<RoutingPolicy> routing_policy_of(std::string_view name);

// One prefill worker as the router sees it.
struct PrefillView {
  bool ready = true;             // fresh load report, equal fingerprint, not draining
  int64_t hit_tokens = 0;        // of this prompt in its device or RAM
  int64_t queued_tokens = 0;     // still to be computed there, after its own hits
  int64_t active_requests = 0;   // queued or running
  int64_t held_tokens = 0;       // in its pages, for requests that run
  int64_t capacity_tokens = 0;   // of its pages; 0: unknown
  int64_t recent_tokens = 0;     // computed in the last three minutes
  double us_per_token = 1;       // of computing; learnt on line
  double load_us_per_token = 0;  // of reading a stored token; 0: no store
  int64_t replay_tokens = 0;     // rows to compute again behind a hit without a snapshot
};

struct PromptView {
  int64_t tokens = 0;         // N
  int64_t stored_tokens = 0;  // H: longest prefix in any tier that every worker can reach
  uint64_t hash = 0;          // of the request: breaks ties
  uint64_t session = 0;       // of the conversation or user
  uint64_t number = 0;        // of placements before this one
};

struct Placement {
  int32_t worker = -1;          // -1: none is ready
  int64_t loaded_tokens = 0;    // to be read from the shared store first
  int64_t computed_tokens = 0;  // the rest, replayed ones included
  double first_token_us = 0;    // predicted
};

// Predicted time to the first token on one worker, and how much of the prompt is loaded for that.
Placement predict_first_token(const PromptView& prompt, const PrefillView& worker);

Placement place_prefill(RoutingPolicy policy, const PromptView& prompt, std::span<const PrefillView> workers);

// Every policy but kDefault: policy/routing_study.cc. -1: none is ready.
int32_t choose_studied(RoutingPolicy policy, const PromptView& prompt, std::span<const PrefillView> workers);

struct DecodeView {
  bool ready = true;
  int64_t used_tokens = 0, capacity_tokens = 0;  // of its pages; leases count as used
  int64_t active_requests = 0, max_requests = 0;
};

// Least (used + need) / capacity + active / (2 max) among those that can reserve `need_tokens`; ties by `hash`. -1: none can.
int32_t place_decode(int64_t need_tokens, uint64_t hash, std::span<const DecodeView> workers);

// Below so many tokens to compute a hand-over costs more than it saves: the decode worker prefills itself (cluster.md section 2).
struct Disaggregation {
  int64_t min_computed_tokens = 512;
  bool pays(int64_t tokens, int64_t hit_tokens) const { return tokens - hit_tokens >= min_computed_tokens; }
};

// For ties: an order of the workers that depends on the request only (rendezvous hashing).
uint64_t worker_rank(uint64_t hash, size_t worker);

}  // namespace deepinfer
