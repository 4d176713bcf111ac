// cpu/cpu_device.h - a Device on the host's cores.
//
// Every call has finished when it returns; record() and wait() cost nothing. Work is spread over a thread pool by rows,
// output columns, heads or cache entries, never so that a result depends on the split. After warm-up no operation
// allocates: scratch grows to the largest shape seen and stays.
// Threads: one at a time; the pool's workers are the device's own.
//
//   auto device = make_cpu_device({.threads = 2, .isa = "avx2"});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/device.h"

namespace deepinfer {

struct CpuOptions {
  int threads = 0;  // <= 0: all processors this process may run on
  std::string isa;  // empty = the best this machine has; else one name of list_cpu_kernels()
};

Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options = {});

// One line of the table of kernel sets, best first.
struct CpuKernelsInfo {
  std::string isa;
  bool supported = false;  // by this machine
  std::string why;         // what it needs, for tables and errors
};
std::vector<CpuKernelsInfo> list_cpu_kernels();

// FP32 multiply-adds per second of all threads together, without a load: what products can reach at most. 0 for a name that
// is not in the list or that this machine cannot run.
double measure_multiply_adds(const std::string& isa, int threads);

}  // namespace deepinfer
