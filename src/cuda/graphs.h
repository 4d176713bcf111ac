// cuda/graphs.h - what a stream was given once, to be given again in one call. Internal to `cuda`.
//
// The first run under a key is an ordinary one (the driver loads kernels when they are first used), the second is
// recorded, later ones are launched: one call instead of some 1,500 for a step of 43 layers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

#include "base/function_ref.h"

namespace deepinfer::cuda {

class Graphs {
 public:
  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs();

  cudaError_t run(cudaStream_t stream, uint64_t key, FunctionRef<void()> fn);

 private:
  struct Entry {
    int runs = 0;
    cudaGraphExec_t graph = nullptr;
  };
  // More keys than this run unrecorded: a caller that makes a new key each time must not fill the memory.
  static constexpr size_t kMost = 64;
  std::map<uint64_t, Entry> entries_;
};

}  // namespace deepinfer::cuda
