// cuda/launch.cuh - how an operation becomes a kernel, and DOT by sixteen threads. Internal to `cuda`.
//
// Row counts are device values: grids are sized by capacity and bounded by the machine, and every kernel strides over the
// live rows. So a recorded launch serves any count, and a padded capacity costs nothing but idle blocks.
#pragma once

#include <cuda_runtime.h>

#include "cuda/context.h"
#include "ops/portable/bodies.h"

namespace deepinfer::cuda {

inline constexpr int kThreads = 256;
// Blocks per multiprocessor of a striding kernel: enough to hide latency at 256 threads.
inline constexpr int kBlocksPerSm = 8;

__device__ inline int64_t live(const Rows& rows) { return *rows.count < rows.capacity ? *rows.count : rows.capacity; }

// A barrier of the sixteen threads around this one.
__device__ inline unsigned lanes_mask() { return 0xFFFFu << (threadIdx.x & 16); }

// Adds sixteen lanes as the fixed tree (ops.h); all get the sum.
__device__ inline float sum_of_lanes(float lane) {
  for (int s = 8; s >= 1; s /= 2) lane += __shfl_down_sync(lanes_mask(), lane, s, kLanes);
  return __shfl_sync(lanes_mask(), lane, 0, kLanes);
}

// DOT by sixteen neighbouring threads, each one lane: the same additions as SerialDot. All sixteen call it.
struct LanesDot {
  template <class A, class B>
  __device__ float operator()(int k, A a, B b) const {
    float lane = 0.0f;
#pragma unroll 16  // loads on their way at once: the chain itself is short
    for (int i = threadIdx.x % kLanes; i < k; i += kLanes) lane = fma32(a(i), b(i), lane);
    return sum_of_lanes(lane);
  }
};

// DOT by a block of kThreads threads: all of them bring the values to shared memory, sixteen add them. Long rows need it: loads
// of sixteen threads alone took 190 us for the 24 projections of 20,480 columns. All threads call it and get the sum.
struct StagedDot {
  static constexpr int kStage = 4096;
  float* room;  // [2 * kStage + 1], shared
  template <class A, class B>
  __device__ float operator()(int k, A a, B b) const {
    float lane = 0.0f;
    for (int base = 0; base < k; base += kStage) {
      const int count = k - base < kStage ? k - base : kStage;
      __syncthreads();
#pragma unroll 8
      for (int i = threadIdx.x; i < count; i += kThreads) {
        room[i] = a(base + i);
        room[kStage + i] = b(base + i);
      }
      __syncthreads();
      if (threadIdx.x >= kLanes) continue;
#pragma unroll 8
      for (int i = threadIdx.x; i < count; i += kLanes) lane = fma32(room[i], room[kStage + i], lane);
    }
    if (threadIdx.x < kLanes) {
      const float sum = sum_of_lanes(lane);
      if (threadIdx.x == 0) room[2 * kStage] = sum;
    }
    __syncthreads();
    return room[2 * kStage];
  }
};

template <class F>
__global__ void __launch_bounds__(kThreads) items_kernel(Rows rows, int64_t items, F f) {
  const int64_t n = live(rows) * items, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) f(i / items, i % items);
}

template <class F>
__global__ void __launch_bounds__(1024) rows_kernel(Rows rows, F f) {
  const int64_t n = live(rows);
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    f(row);
    __syncthreads();
  }
}

inline unsigned bounded_blocks(int64_t wanted, int64_t most) {
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

// f(row, item) for `items` items of each live row, a thread each. Sixteen neighbouring items of a multiple of sixteen are
// sixteen lanes.
template <class F>
void each_item(const GpuContext& c, const Rows& rows, int64_t items, F f) {
  const int64_t blocks = (rows.capacity * items + kThreads - 1) / kThreads;
  items_kernel<<<bounded_blocks(blocks, int64_t{c.multiprocessors} * kBlocksPerSm), kThreads, 0, c.stream>>>(rows, items, f);
}

// f(row) for each live row by a block of `threads` threads, which may meet at barriers.
template <class F>
void each_row(const GpuContext& c, const Rows& rows, int threads, F f) {
  rows_kernel<<<bounded_blocks(rows.capacity, int64_t{c.multiprocessors} * kBlocksPerSm), threads, 0, c.stream>>>(rows, f);
}

}  // namespace deepinfer::cuda
