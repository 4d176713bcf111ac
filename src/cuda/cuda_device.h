// cuda/cuda_device.h - a Device on one NVIDIA GPU.
//
// Promise: a numerics class of its own, named after the architecture (`sm90`): products with weights run on tensor cores, exact
// operands summed in an order that only a weight's shape decides; all else is bit for bit the CPU's. In class `portable` products
// are, too: every kernel adds in the order of ops.h, the oracle of the other class. Work runs asynchronously on one stream;
// nothing on the decode path waits. upload() and download() go through pinned memory of the device's own, so any host memory will
// do. Operations allocate nothing and can be recorded (Device::replay). Errors: no driver, no such GPU, an architecture this
// program has no code for, out of memory with what is free. Threads: one at a time per device; several devices on one GPU may run
// side by side and see each other's memory.
//
//   auto device = make_cuda_device({.index = 0});
#pragma once

#include <memory>
#include <string>

#include "ops/device.h"

namespace deepinfer {

struct CudaOptions {
  int index = 0;          // as the driver counts
  bool graphs = true;     // replay() records; else it runs
  bool portable = false;  // class `portable` instead of the architecture's own
};

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options = {});

// One GPU of this machine for tables: "NVIDIA H200, 139.8 GB, sm_90". Without CUDA or a driver the error says so.
Result<std::string> describe_cuda_device(int index);

// Bytes per second the GPU reads from its memory: the limit of decoding. 0 where it cannot be measured.
double measure_cuda_read(Device& device);

}  // namespace deepinfer
