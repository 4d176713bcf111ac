// lab/bench_cache.h - what the KV store on a disk gives and costs, beside the same disk without it.
//
// Medians; baselines of the same run in the same folder. Rows:
//   cache/lookup        a prefix of 1,000 pages among 10 million
//   cache/write         pages through ring, writer and segments; limit: the disk's own rate for as many bytes in order
//   cache/read          512 pages (32k tokens) by the readers; limit likewise
//   cache/ready         the same in time; limit: 1.25 times the bytes at the disk's rate and 5 ms
//   cache/decode        tokens a second while finished pages are written; baseline: without a store
// Threads: one; the host must be otherwise idle.
#pragma once

#include <string>

#include "base/result.h"
#include "host/host.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchCacheOptions {
  std::string folder;  // for a store of the bench's own below it, removed at the end
  int32_t repeats = 3;
  int32_t pages = 4096;
  int64_t indexed = 10'000'000;
};

Status bench_cache(Host& host, const BenchCacheOptions& options, FigureReport& report);

}  // namespace deepinfer
