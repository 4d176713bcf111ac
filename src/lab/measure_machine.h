// lab/measure_machine.h - what this machine gives at most: the limits beside which figures stand.
//
// Each is the best of five short runs (two, of half the memory, when it shall be quick): what disturbs a run on a shared machine
// only makes it slower. Threads: one; the machine should be otherwise idle.
//
//   const Hardware here = measure_processor("avx512", 2, {.quick = true});   // about a second
#pragma once

#include <chrono>
#include <string>

#include "cost/hardware.h"
#include "formats/checkpoint.h"

namespace deepinfer {

// Of the clock on the wall, since some moment.
inline double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct MeasureEffort {
  bool quick = false;
  int repeats() const { return quick ? 2 : 5; }
};

// Bytes per second of one pass over a buffer far larger than the caches, that many threads reading (<= 0: all processors).
double measure_read_bandwidth(int threads, MeasureEffort effort = {});
// Seconds that a call of a thread pool takes in which all threads have a part and nothing to do.
double measure_barrier(int threads);
// Bytes per second of half a GB of the first shard past the page cache, four reads under way; 0 = there is no file.
double measure_disk_read(const Checkpoint& checkpoint);

// All but the disk, of the processor with one set of kernels; memory is what the system can still give. The second without any
// rates.
Hardware measure_processor(const std::string& isa, int threads, MeasureEffort effort = {});
Hardware unmeasured_processor();

}  // namespace deepinfer
