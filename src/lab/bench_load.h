// lab/bench_load.h - what a model costs before its first token: memory and time of packing its weights.
//
// Threads: one; the machine should be otherwise idle.
//
//   FigureReport report("bench decode");
//   DI_CHECK_OK(bench_load(*host, report));
#pragma once

#include "base/result.h"
#include "host/host.h"
#include "lab/figures.h"

namespace deepinfer {

// Rows load/packed (MB of weights once packed and of tensors read as stored, by the checkpoint's) and load/pack (seconds by those
// of reading as many bytes into new memory in this run: of a file in the page cache, of a checkpoint in memory by copying). None
// where the device packs nothing.
Status bench_load(Host& host, FigureReport& report);

}  // namespace deepinfer
