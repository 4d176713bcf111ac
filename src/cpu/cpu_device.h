// cpu/cpu_device.h - a Device on the host's cores.
//
// Every call has finished when it returns; record() and wait() cost nothing. Work is spread over a thread pool by rows,
// output columns, heads or cache entries, never so that a result depends on the split. After warm-up no operation
// allocates: scratch grows to the largest shape seen and stays. Of experts of a checkpoint larger than memory those used most
// stay, packed (expert_memory.h); the others are read when they are chosen (expert_reader.h), and a read that fails is wait()'s.
// Threads: one at a time; the pool's workers are the device's own.
//
//   auto device = make_cpu_device({.threads = 2, .isa = "avx2"});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/disk_reads.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer {

struct CpuOptions {
  int threads = 0;  // <= 0: all processors this process may run on
  std::string isa;  // empty = the best this machine has; else one name of list_cpu_kernels()
  // Memory for routed experts: > 0 keeps those used most in so many bytes; 0 = all of them where the machine has room, else
  // what is left.
  int64_t expert_bytes = 0;
  // Reads the others from the files of a checkpoint. Null: the system reads them when their mapping is touched, as it does where
  // four fifths of `file_pages` bytes hold them all.
  std::unique_ptr<DiskReads> disk = nullptr;
  int64_t file_pages = -1;  // what the system has left for pages of files; < 0 = ask it
};

Result<std::unique_ptr<Device>> make_cpu_device(CpuOptions options = {});

// One line of the table of kernel sets, best first.
struct CpuKernelsInfo {
  std::string isa;
  bool supported = false;  // by this machine
  std::string why;         // what it needs, for tables and errors
  bool own_class = false;  // its products have other bits: only by name
};
std::vector<CpuKernelsInfo> list_cpu_kernels();

// Multiply-adds per second of all threads together, without weights to load: what products with this format and e4m3 inputs
// can reach at most by the best unit that the set may use: FP32 units; for e2m1 bytes, two for an input, or tiles, where that is
// more; of a class of its own its tiles. 0 for a name that is not in the list or that this machine cannot run.
double measure_multiply_adds(const std::string& isa, int threads, WeightFormat format, int repeats = 5);
// The same of index scores, e2m1 by e2m1: FP32 units, or bytes, one for an input.
double measure_multiply_scores(const std::string& isa, int threads);

}  // namespace deepinfer
