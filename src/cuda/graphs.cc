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

Graphs::~Graphs() {
  for (auto& [key, entry] : entries_) {
    if (entry.graph) (void)cudaGraphExecDestroy(entry.graph);
  }
}

cudaError_t Graphs::run(cudaStream_t stream, uint64_t key, FunctionRef<void()> fn) {
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() < kMost) entries_.emplace(key, Entry{1, nullptr});
    fn();
    return cudaSuccess;
  }
  Entry& entry = found->second;
  if (entry.runs++ == 1) {
    if (const cudaError_t error = record(stream, fn, &entry.graph)) return error;
  }
  return entry.graph ? cudaGraphLaunch(entry.graph, stream) : cudaErrorInvalidResourceHandle;
}

}  // namespace deepinfer::cuda
