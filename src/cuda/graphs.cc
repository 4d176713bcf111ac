#include "cuda/graphs.h"

namespace deepinfer::cuda {

namespace {

cudaError_t record(cudaStream_t stream, FunctionRef<void()> fn, cudaGraphExec_t* out) {
  if (const cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) return error;
  fn();
  cudaGraph_t graph = nullptr;
  if (const cudaError_t error = cudaStreamEndCapture(stream, &graph)) return error;
  const cudaError_t error = cudaGraphInstantiate(out, graph, 0);
  (void)cudaGraphDestroy(graph);
  return error;
}

}  // namespace

cudaError_t Graph::run(cudaStream_t stream, FunctionRef<void()> fn) {
  if (runs_++ == 0) {
    fn();
    return cudaSuccess;
  }
  if (!graph_) {
    if (const cudaError_t error = record(stream, fn, &graph_)) return error;
  }
  return cudaGraphLaunch(graph_, stream);
}

}  // namespace deepinfer::cuda
