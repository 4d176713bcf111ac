// cuda/staging.h - pinned memory between the host and one stream. Internal to `cuda`.
//
// Copies of pageable memory would make the host wait; so uploads are copied here first, and downloads land here until a
// wait() hands them out. Two halves take turns: one is filled while the other drains.
//
// What is as large as a page or a state crosses the bus on a stream of its own, one for each direction, by way of device
// memory: the main stream only copies between there and where it belongs, at the speed of the device's memory. So it keeps its
// order - whoever writes to a page next comes behind its copy - and computes on while the bus is slow.
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

  // Both enqueue one piece, in the order of `stream`; they wait only when the other half is still busy.
  cudaError_t upload(cudaStream_t stream, void* to, const void* from, size_t bytes);
  cudaError_t download(cudaStream_t stream, void* to, const void* from, size_t bytes, uint64_t ticket);
  // Where a mark stands behind all that was enqueued: on `stream`, or behind it and the downloads on their way.
  cudaError_t end_of(cudaStream_t stream, cudaStream_t* end);
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
    uint8_t* mirror = nullptr;  // of the device
    size_t used = 0;
    cudaEvent_t done = nullptr;
    bool busy = false;
    std::vector<Landing> landings;
  };
  struct Place {
    uint8_t *host, *device;
  };
  cudaError_t take(cudaStream_t stream, size_t bytes, Place* at);

  Half halves_[2];
  size_t half_bytes_ = 0;
  int current_ = 0;
  cudaStream_t in_ = nullptr, out_ = nullptr;
  cudaEvent_t arrived_ = nullptr, ready_ = nullptr;  // an upload in its mirror; all before a download or a mark
  uint64_t outgoing_ = 0;                            // of downloads on their way: the newest one's ticket; 0 = none
};

}  // namespace deepinfer::cuda
