// lab/bench_serve.h - what the server costs: processor time a streamed token, time to the first byte, requests a second, memory
// of a connection. The server is this program in a process of its own with a scripted model at pace 0, so that what is
// measured is not a model; a plain Beast server runs beside it.
// Threads: one.
#pragma once

#include <string>

#include "lab/figures.h"

namespace deepinfer {

struct BenchServeOptions {
  std::string program;   // to run `serve` of
  int streams = 256;     // at once; 8 requests each are streamed, and 80 are answered whole
  int connections = 32;  // of the whole answers
};

Status bench_serve(const BenchServeOptions& options, FigureReport& report);

}  // namespace deepinfer
