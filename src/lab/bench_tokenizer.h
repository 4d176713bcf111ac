// lab/bench_tokenizer.h - how fast a tokenizer loads, encodes and decodes on one core.
//
// Rows: tokenizer/load (ms); tokenizer/encode/LANGUAGE (tokens/s, with /bytes in MB/s) for Python sources, English, Chinese
// and Japanese from the corpus; tokenizer/decode/english; tokenizer/repeated/WHAT (MB/s at 2 MB) and .../growth (time of 2 MB
// over that of 1 MB) for texts of one character. The tokenizer keeps nothing between calls, so a pass over megabytes meets
// every text as new; each figure is the best of `repeats` passes in processor time of the one thread, since what disturbs a
// pass only makes it slower.
// Without the corpus, Python sources of the machine and the documents of this tree stand in and the row names say so;
// languages without text have no row.
// Threads: one.
//
//   FigureReport report("bench tokenizer");
//   DI_CHECK_OK(bench_tokenizer({}, report));
#pragma once

#include <string>

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

struct BenchTokenizerOptions {
  std::string tokenizer;          // tokenizer.json(.zst); empty = the release's
  std::string corpus;             // folder of the corpus; empty = ../shared/data/corpus beside the tree
  size_t text_bytes = 4'000'000;  // of each language
  int repeats = 9;
};

Status bench_tokenizer(const BenchTokenizerOptions& options, FigureReport& report);

}  // namespace deepinfer
