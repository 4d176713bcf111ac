#include "cuda/staging.h"

#include <cstring>

namespace deepinfer::cuda {

namespace {
constexpr size_t kAlignment = 256;
constexpr size_t kUsualLandings = 256;  // of one step; more only grow a vector
// From here on the bus takes longer than the two calls that a stream of its own costs: at 50 GB/s 0.7 us.
constexpr size_t kLarge = size_t{32} << 10;

// The first failure of a row of calls; those behind it are not made.
template <class... Calls>
cudaError_t in_turn(Calls... calls) {
  cudaError_t error = cudaSuccess;
  (void)((error = calls(), error == cudaSuccess) && ...);
  return error;
}

cudaError_t follow(cudaStream_t stream, cudaEvent_t event, cudaStream_t before) {
  return in_turn([&] { return cudaEventRecord(event, before); }, [&] { return cudaStreamWaitEvent(stream, event); });
}
}  // namespace

Staging::~Staging() {
  for (const cudaStream_t stream : {in_, out_}) {
    if (!stream) continue;
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
  }
  for (const cudaEvent_t event : {arrived_, ready_, halves_[0].done, halves_[1].done}) {
    if (event) (void)cudaEventDestroy(event);
  }
  for (Half& half : halves_) {
    if (half.memory) (void)cudaFreeHost(half.memory);
    if (half.mirror) (void)cudaFree(half.mirror);
  }
}

cudaError_t Staging::create(size_t half_bytes) {
  half_bytes_ = half_bytes;
  for (cudaStream_t* stream : {&in_, &out_}) {
    if (const cudaError_t error = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking)) return error;
  }
  for (cudaEvent_t* event : {&arrived_, &ready_, &halves_[0].done, &halves_[1].done}) {
    if (const cudaError_t error = cudaEventCreateWithFlags(event, cudaEventDisableTiming)) return error;
  }
  for (Half& half : halves_) {
    void *memory = nullptr, *mirror = nullptr;
    const cudaError_t error = in_turn([&] { return cudaHostAlloc(&memory, half_bytes, cudaHostAllocDefault); },
                                      [&] { return cudaMalloc(&mirror, half_bytes); });
    half.memory = static_cast<uint8_t*>(memory);
    half.mirror = static_cast<uint8_t*>(mirror);
    if (error) return error;
    half.landings.reserve(kUsualLandings);
  }
  return cudaSuccess;
}

cudaError_t Staging::end_of(cudaStream_t stream, cudaStream_t* end) {
  *end = outgoing_ ? out_ : stream;
  return outgoing_ ? follow(out_, ready_, stream) : cudaSuccess;
}

cudaError_t Staging::take(cudaStream_t stream, size_t bytes, Place* at) {
  Half* half = &halves_[current_];
  if (half->used + bytes > half_bytes_) {
    cudaStream_t end = nullptr;
    if (const cudaError_t error = in_turn([&] { return end_of(stream, &end); }, [&] { return cudaEventRecord(half->done, end); }))
      return error;
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
  *at = {half->memory + half->used, half->mirror + half->used};
  half->used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return cudaSuccess;
}

cudaError_t Staging::upload(cudaStream_t stream, void* to, const void* from, size_t bytes) {
  Place at{};
  if (const cudaError_t error = take(stream, bytes, &at)) return error;
  std::memcpy(at.host, from, bytes);
  if (bytes < kLarge) return cudaMemcpyAsync(to, at.host, bytes, cudaMemcpyHostToDevice, stream);
  return in_turn([&] { return cudaMemcpyAsync(at.device, at.host, bytes, cudaMemcpyHostToDevice, in_); },
                 [&] { return follow(stream, arrived_, in_); },
                 [&] { return cudaMemcpyAsync(to, at.device, bytes, cudaMemcpyDeviceToDevice, stream); });
}

cudaError_t Staging::download(cudaStream_t stream, void* to, const void* from, size_t bytes, uint64_t ticket) {
  Place at{};
  if (const cudaError_t error = take(stream, bytes, &at)) return error;
  halves_[current_].landings.push_back({to, at.host, bytes, ticket});
  if (bytes < kLarge) return cudaMemcpyAsync(at.host, from, bytes, cudaMemcpyDeviceToHost, stream);
  outgoing_ = ticket;
  return in_turn([&] { return cudaMemcpyAsync(at.device, from, bytes, cudaMemcpyDeviceToDevice, stream); },
                 [&] { return follow(out_, ready_, stream); },
                 [&] { return cudaMemcpyAsync(at.host, at.device, bytes, cudaMemcpyDeviceToHost, out_); });
}

void Staging::hand_out(uint64_t ticket) {
  if (ticket >= outgoing_) outgoing_ = 0;
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
