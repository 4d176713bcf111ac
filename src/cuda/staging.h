// cuda/staging.h - pinned memory between the host and one stream. Internal to `cuda`.
//
// Copies of pageable memory would make the host wait; so uploads are copied here first, and downloads land here until a
// wait() hands them out. Two halves take turns: one is filled while the other drains.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::cuda {

class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  cudaError_t create(size_t half_bytes);
  // Largest piece that fits.
  size_t piece() const { return half_bytes_; }

  // Both enqueue one piece on `stream`; they wait only when the other half is still busy.
  cudaError_t upload(cudaStream_t stream, void* to, const void* from, size_t bytes);
  cudaError_t download(cudaStream_t stream, void* to, const void* from, size_t bytes, uint64_t ticket);
  // Hands out what was enqueued for tickets up to this one. REQUIRES: the stream has run that far.
  void hand_out(uint64_t ticket);

 private:
  struct Landing {
    void* to;
    const uint8_t* from;
    size_t bytes;
    uint64_t ticket;
  };
  struct Half {
    uint8_t* memory = nullptr;
    size_t used = 0;
    cudaEvent_t done = nullptr;
    bool busy = false;
    std::vector<Landing> landings;
  };
  cudaError_t take(cudaStream_t stream, size_t bytes, uint8_t** at);

  Half halves_[2];
  size_t half_bytes_ = 0;
  int current_ = 0;
};

}  // namespace deepinfer::cuda
