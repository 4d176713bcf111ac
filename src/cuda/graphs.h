// cuda/graphs.h - what a stream was given once, to be given again in one call. Internal to `cuda`.
//
// The first run is an ordinary one (the driver loads kernels when they are first used), the second is recorded, later ones
// are launched: one call instead of some 1,500 for a step of 43 layers.
#pragma once

#include <cuda_runtime_api.h>

#include "base/function_ref.h"
#include "ops/device.h"

namespace deepinfer::cuda {

class Graph final : public Recording {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() override {
    if (graph_) (void)cudaGraphExecDestroy(graph_);
  }

  cudaError_t run(cudaStream_t stream, FunctionRef<void()> fn);

 private:
  int runs_ = 0;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace deepinfer::cuda
