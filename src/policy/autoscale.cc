#include "policy/autoscale.h"

#include <algorithm>

namespace deepinfer {

double utilisation(const ScaleSample& sample, double target_first_token_s) {
  if (sample.workers == 0) return 1;
  const double queue = target_first_token_s > 0 ? sample.queue_seconds / target_first_token_s : 0;
  return std::max({sample.kv_share, sample.active_share, queue});
}

double prefill_per_decode(const PhaseRates& rates) {
  if (rates.prefill_tokens_s <= 0 || rates.decode_tokens_s <= 0 || rates.output_tokens <= 0) return 0;
  return (rates.uncached_prompt_tokens / rates.prefill_tokens_s) / (rates.output_tokens / rates.decode_tokens_s);
}

void Autoscaler::note(int64_t now_us, double value) {
  if (changed_us_ < 0) changed_us_ = now_us;
  samples_.push_back({now_us, value});
  sum_ += value;
  while (samples_.front().at_us < now_us - options_.window_us) {
    sum_ -= samples_.front().value;
    samples_.pop_front();
  }
  if (value <= options_.out_above) high_since_us_ = -1;
  if (value > options_.out_above && high_since_us_ < 0) high_since_us_ = now_us;
}

// What was measured belongs to another number of workers now.
int32_t Autoscaler::change(int64_t now_us, int32_t workers) {
  samples_.clear();
  sum_ = 0;
  high_since_us_ = -1;
  changed_us_ = now_us;
  return workers;
}

int32_t Autoscaler::decide(int64_t now_us, int32_t workers, double utilisation) {
  note(now_us, utilisation);
  if (workers < options_.min) return change(now_us, options_.min);
  if (workers > options_.max) return change(now_us, options_.max);
  const bool is_high = high_since_us_ >= 0 && now_us - high_since_us_ >= options_.out_after_us;
  if (is_high && workers < options_.max) return change(now_us, workers + 1);
  if (workers <= options_.min || now_us - changed_us_ < options_.window_us || utilisation > options_.in_below) return workers;
  const double left = mean() * static_cast<double>(workers) / static_cast<double>(workers - 1);
  return left < options_.in_below ? change(now_us, workers - 1) : workers;
}

}  // namespace deepinfer
