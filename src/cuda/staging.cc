#include "cuda/staging.h"

#include <cstring>

namespace deepinfer::cuda {

namespace {
constexpr size_t kAlignment = 256;
constexpr size_t kUsualLandings = 256;  // of one step; more only grow a vector
}  // namespace

Staging::~Staging() {
  for (Half& half : halves_) {
    if (half.done) (void)cudaEventDestroy(half.done);
    if (half.memory) (void)cudaFreeHost(half.memory);
  }
}

cudaError_t Staging::create(size_t half_bytes) {
  half_bytes_ = half_bytes;
  for (Half& half : halves_) {
    void* memory = nullptr;
    if (const cudaError_t error = cudaHostAlloc(&memory, half_bytes, cudaHostAllocDefault)) return error;
    half.memory = static_cast<uint8_t*>(memory);
    if (const cudaError_t error = cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming)) return error;
    half.landings.reserve(kUsualLandings);
  }
  return cudaSuccess;
}

cudaError_t Staging::take(cudaStream_t stream, size_t bytes, uint8_t** at) {
  Half* half = &halves_[current_];
  if (half->used + bytes > half_bytes_) {
    if (const cudaError_t error = cudaEventRecord(half->done, stream)) return error;
    half->busy = true;
    current_ = 1 - current_;
    half = &halves_[current_];
    if (half->busy) {
      if (const cudaError_t error = cudaEventSynchronize(half->done)) return error;
      for (const Landing& l : half->landings) std::memcpy(l.to, l.from, l.bytes);
      half->landings.clear();
      half->busy = false;
    }
    half->used = 0;
  }
  *at = half->memory + half->used;
  half->used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return cudaSuccess;
}

cudaError_t Staging::upload(cudaStream_t stream, void* to, const void* from, size_t bytes) {
  uint8_t* at = nullptr;
  if (const cudaError_t error = take(stream, bytes, &at)) return error;
  std::memcpy(at, from, bytes);
  return cudaMemcpyAsync(to, at, bytes, cudaMemcpyHostToDevice, stream);
}

cudaError_t Staging::download(cudaStream_t stream, void* to, const void* from, size_t bytes, uint64_t ticket) {
  uint8_t* at = nullptr;
  if (const cudaError_t error = take(stream, bytes, &at)) return error;
  if (const cudaError_t error = cudaMemcpyAsync(at, from, bytes, cudaMemcpyDeviceToHost, stream)) return error;
  halves_[current_].landings.push_back({to, at, bytes, ticket});
  return cudaSuccess;
}

void Staging::hand_out(uint64_t ticket) {
  for (Half& half : halves_) {
    size_t kept = 0;
    for (const Landing& l : half.landings) {
      if (l.ticket <= ticket) {
        std::memcpy(l.to, l.from, l.bytes);
      } else {
        half.landings[kept++] = l;
      }
    }
    half.landings.resize(kept);
  }
}

}  // namespace deepinfer::cuda
