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

// Rows load/packed (MB of weights once packed and of tensors read as stored, by the checkpoint's), load/pack (how long it took
// when the model was opened, with the system's time to find that memory) and load/repack (half a GB of the same weights packed
// again, by the time of reading as many bytes into new memory: of a file in the page cache, of a checkpoint in memory by
// copying). None where the device packs nothing.
Status bench_load(Host& host, FigureReport& report);

}  // namespace deepinfer
