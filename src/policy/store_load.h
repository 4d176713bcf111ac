// policy/store_load.h - whether pages of the store are worth reading, and how long a request waits for them (kv_cache.md, section
// 7).
//
// Both sides are measured: reading by the tier, computing by the engine's steps of prompts. What was not measured yet is
// assumed to be worth trying, because that measures it.
// Threads: pure.
#pragma once

#include <cstdint>

namespace deepinfer {

struct StoreLoadCost {
  int64_t bytes = 0;         // to read
  double bytes_per_us = 0;   // of the tier; 0: unknown
  int64_t saved_tokens = 0;  // that need not be computed then
  double us_per_token = 0;   // of computing a prompt; 0: unknown
  double fixed_us = 1'000;   // of a load of any size: two turns of the engine and a reader that wakes up
};

inline bool load_pays(const StoreLoadCost& cost) {
  if (cost.saved_tokens <= 0) return false;
  if (cost.bytes_per_us <= 0 || cost.us_per_token <= 0) return true;
  const double load_us = cost.fixed_us + static_cast<double>(cost.bytes) / cost.bytes_per_us;
  return load_us < static_cast<double>(cost.saved_tokens) * cost.us_per_token;
}

// Beyond it what has come is used and the rest is computed.
struct StoreDeadline {
  int64_t base_us = 500'000, per_1k_us = 100'000;
  int64_t us(int64_t tokens) const { return base_us + per_1k_us * tokens / 1024; }
};

}  // namespace deepinfer
