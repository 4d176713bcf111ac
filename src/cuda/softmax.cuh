// cuda/softmax.cuh - exponentials() of ops/portable/attention.h by sixteen threads: the same values, the same sums. Internal.
#pragma once

#include "cuda/launch.cuh"

namespace deepinfer::cuda {

// All sixteen lanes call it and get the sum. Chunks of `chunk` slots start anew at slot `window`; REQUIRES: slots > 0.
__device__ inline float exponentials_by_lanes(float* scores, int64_t window, int64_t slots, int64_t chunk, float* maximum) {
  const int lane = threadIdx.x % kLanes;
  float top = -1e30f, sum = 0.0f;
  for (int64_t begin = 0, end; begin < slots; begin = end) {
    const int64_t part_end = begin < window ? window : slots;
    end = begin + chunk < part_end ? begin + chunk : part_end;
    float best = scores[begin];
    for (int64_t j = begin + lane; j < end; j += kLanes) best = max32(best, scores[j]);
    for (int s = 8; s >= 1; s /= 2) best = max32(best, __shfl_xor_sync(lanes_mask(), best, s, kLanes));
    const float before = top;
    top = max32(top, best);
    const float shrink = exp32(before - top);
    if (shrink != 1.0f) {
      for (int64_t j = lane; j < begin; j += kLanes) scores[j] *= shrink;
    }
    float part = 0.0f;
    for (int64_t j = begin + lane; j < end; j += kLanes) {
      const float p = exp32(scores[j] - top);
      part = fma32(p, 1.0f, part);
      scores[j] = round_bf16(p);
    }
    sum = sum * shrink + sum_of_lanes(part);
    __syncwarp(lanes_mask());  // a later rescaling reaches them from other lanes
  }
  *maximum = top;
  return sum;
}

}  // namespace deepinfer::cuda
