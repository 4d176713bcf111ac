// lab/golden.h - runs golden case files and folders.
//
// A path is a JSON Lines file of recipe cases (.jsonl, .jsonl.zst), a model folder (a checkpoint folder beside golden/, may hold
// .zst files), or a folder of such things. New cases and other checkpoints need no code.
// Promise: an Error only for a path that cannot be read or holds no case; everything a case shows is in the counts.
// Threads: one.
//
//   DI_TRY(GoldenCounts counts, run_golden("tests/golden", {.tokenizer = file}));
#pragma once

#include <string>

#include "base/result.h"
#include "lab/golden_counts.h"

namespace deepinfer {

struct GoldenOptions {
  std::string tokenizer;                              // of recipe cases
  std::string device = "cpu";                         // of model cases
  int threads = 0;                                    // of a CPU device, 0 = all processors
  void (*say)(const std::string& message) = nullptr;  // what runs, what is left out and why
};

Result<GoldenCounts> run_golden(const std::string& path, const GoldenOptions& options);

}  // namespace deepinfer
