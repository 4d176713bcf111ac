// lab/bench_engine.h - what the engine costs beside the model, and what its cache and replay cost.
//
// Ratios inside one run, because a shared machine makes absolute figures wander: the forward passes of the very steps that are
// measured are the baseline. Rows:
//   engine/overhead/N            step over forward pass, N requests decoding
//   engine/idle gap/N            share of the time in which nothing computes although there is work
//   engine/overlap/N             step launched before the last one's results are read, over one after the other (GPU)
//   engine/token gap p99         between tokens of answers while 8k prompts come in, over the median step of that mix
//   engine/short prompt          until the first token of 64 beside an 8k prompt that has begun, over alone
//   engine/prompts/16            tokens a second of prompts that share steps, over one after the other
//   engine/rank imbalance        with --ranks: busiest rank over the mean, prompts of 64 to 4,096 tokens with short answers
//   engine/plan                  choosing who starts and which rows run: 256 running, 10,000 queued
//   cache/keys, cache/match      of a prompt of 1,000 pages
//   replay/MODE/N                a cold prompt of N tokens, over all layers on all tokens
// Threads: one; the host must be otherwise idle.
#pragma once

#include <vector>

#include "base/result.h"
#include "host/host.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchEngineOptions {
  std::vector<int32_t> streams = {1, 8, 32};
  std::vector<int32_t> replayed = {4096};  // prompts, in tokens
  int32_t mixed_prompt = 8000;             // those that disturb
  int32_t mixed_prompts = 3;
  int32_t tokens = 96;
  int32_t repeats = 3;
};

Status bench_engine(Host& host, const BenchEngineOptions& options, FigureReport& report);

}  // namespace deepinfer
