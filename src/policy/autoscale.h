// policy/autoscale.h - how many workers a load needs (cluster.md section 7, elasticity).
//
// Utilisation is the scarcest of memory, slots and time to the first token. More workers when it has been high for a minute;
// fewer when the mean of five minutes says that the rest would still be below 80 %: never in while it is above. Promise: pure
// data and a clock from outside; the same calls give the same numbers. Threads: a value for one thread.
//
//   Autoscaler scaler({.min = 1, .max = 8});
//   const int32_t wanted = scaler.decide(now_us, workers, utilisation(sample, 2.0));
#pragma once

#include <cstdint>
#include <deque>

namespace deepinfer {

// What a worker computes in a second, and what requests ask for, in the mean; 0: not measured.
struct PhaseRates {
  double prefill_tokens_s = 0, decode_tokens_s = 0;
  double uncached_prompt_tokens = 0, output_tokens = 0;  // of a request
};

// Prefill workers for each decode worker with which neither kind waits for the other (P:D); 0: not known yet.
double prefill_per_decode(const PhaseRates& rates);

// Of the workers that are ready.
struct ScaleSample {
  int32_t workers = 0;
  double kv_share = 0;       // pages in use over all of them
  double active_share = 0;   // requests over slots; more than 1 when some wait
  double queue_seconds = 0;  // a prompt waits so long before it is computed, in the mean
  PhaseRates rates;
};

// The largest of the shares and queue over target; 1 when there is no worker.
double utilisation(const ScaleSample& sample, double target_first_token_s);

struct ScaleOptions {
  int32_t min = 1, max = 1;
  double out_above = 0.85, in_below = 0.80;
  int64_t out_after_us = 60'000'000;  // so long above
  int64_t window_us = 300'000'000;    // of the mean, and since the last change
};

class Autoscaler {
 public:
  explicit Autoscaler(const ScaleOptions& options) : options_(options) {}

  // Call it about every second. `workers`: that run or start; gives how many should.
  int32_t decide(int64_t now_us, int32_t workers, double utilisation);
  double mean() const { return samples_.empty() ? 0 : sum_ / static_cast<double>(samples_.size()); }

 private:
  struct Sample {
    int64_t at_us;
    double value;
  };
  void note(int64_t now_us, double value);
  int32_t change(int64_t now_us, int32_t workers);

  const ScaleOptions options_;
  std::deque<Sample> samples_;
  double sum_ = 0;
  int64_t high_since_us_ = -1, changed_us_ = -1;
};

}  // namespace deepinfer
