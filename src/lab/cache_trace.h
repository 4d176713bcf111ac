// lab/cache_trace.h - a recorded stream of prompts against the prefix index, in virtual time: what share of it is found.
//
// The index, the pool and the policy are the engine's own (kvcache/prefix_index.h, policy/eviction.h); only tokens and pages are
// empty. Beside them the same with LRU, and the optimum of who knows the future (Belady). The trace has the form of sim/trace.h,
// plain or .zst. Rows, with P in 1, 5, 10, 25, 50, 100 percent of the distinct blocks:
//   cache/trace/P/lru|default|best   % of all blocks that were found; of `default` the limit is `best`, the baseline LRU
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/figures.h"
#include "policy/eviction.h"

namespace deepinfer {

struct CacheTrace {
  std::vector<std::vector<int32_t>> prompts;  // blocks, numbered from 0
  int32_t distinct = 0;
  int64_t blocks = 0;
};

Result<CacheTrace> read_cache_trace(const std::string& path);
// Blocks found, with room for so many.
int64_t replay_trace(const CacheTrace& trace, int32_t room, EvictionPolicy policy);
int64_t replay_best(const CacheTrace& trace, int32_t room);

Status bench_cache_trace(const std::string& path, FigureReport& report);

}  // namespace deepinfer
