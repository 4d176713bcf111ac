// Attention: a block of threads per row and group of heads, so that a slot's packed row is decoded once for the group.
//
// Scores by sixteen lanes per slot (DOT), the softmax by sixteen lanes per head, the answer by one thread per channel over the
// slots in order. Nothing is split over slots: one block keeps the whole order.
#include "cuda/softmax.cuh"

namespace deepinfer::cuda {

namespace {

constexpr int kGroup = 4;  // heads per block: 64 heads of one row fill 16 blocks

// Shared memory of a block; scores have room for `slots`.
struct Room {
  float* q;         // [kGroup, head_dim]
  float* scores;    // [kGroup, slots]
  float* factors;   // [kGroup]
  PackedRow* rows;  // [slots]
  __device__ Room(void* memory, int head_dim, int64_t slots)
      : q(static_cast<float*>(memory)),
        scores(q + kGroup * head_dim),
        factors(scores + kGroup * slots),
        rows(reinterpret_cast<PackedRow*>(factors + kGroup)) {}
  static int64_t bytes(int head_dim, int64_t slots) {
    return kGroup * (head_dim + slots + 1) * int64_t{sizeof(float)} + slots * int64_t{sizeof(PackedRow)};
  }
};

// What a span may hold (WindowSpan), rounded so that the pointers behind the floats are aligned.
int64_t most_slots(const AttentionParams& p) { return (2 * int64_t{p.ring_slots} + (p.selected ? p.top_k : 0) + 3) / 4 * 4; }

__device__ void score_slots(const AttentionParams& p, const Room& room, int heads, int64_t slots, int64_t stride) {
  const float scale = attention_scale(p.head_dim);
  const int lane = threadIdx.x % kLanes;
  for (int64_t j = threadIdx.x / kLanes; j < slots; j += kThreads / kLanes) {
    const PackedRow from = room.rows[j];
    float sums[kGroup] = {};
    for (int i = lane; i < p.head_dim; i += kLanes) {
      const float k = slot_value(from, i);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) sums[h] = fma32(room.q[h * p.head_dim + i], k, sums[h]);
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const float dot = sum_of_lanes(sums[h]);
      if (lane == 0 && h < heads) room.scores[h * stride + j] = dot * scale;
    }
  }
}

__device__ void add_values(const AttentionParams& p, const Room& room, int64_t row, int head0, int heads, int64_t slots,
                           int64_t stride) {
  for (int d = threadIdx.x; d < p.head_dim; d += kThreads) {
    float sums[kGroup] = {};
    for (int64_t j = 0; j < slots; ++j) {
      const float v = slot_value(room.rows[j], d);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) sums[h] = fma32(room.scores[h * stride + j], v, sums[h]);
    }
    for (int h = 0; h < heads; ++h) p.o[(row * p.heads + head0 + h) * p.head_dim + d] = to_bf16(sums[h] * room.factors[h]);
  }
}

__global__ void __launch_bounds__(kThreads) attention_kernel(AttentionParams p, int64_t stride) {
  extern __shared__ float4 memory[];
  const Room room(memory, p.head_dim, stride);
  const int groups = (p.heads + kGroup - 1) / kGroup;
  const int64_t n = live(p.rows) * groups;
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const int64_t row = i / groups, slots = num_slots(p, row), window = window_slots(p, row);
    if (slots > stride) __trap();  // the span breaks its contract
    const int head0 = static_cast<int>(i % groups) * kGroup, heads = p.heads - head0 < kGroup ? p.heads - head0 : kGroup;
    for (int at = threadIdx.x; at < kGroup * p.head_dim; at += kThreads) {
      room.q[at] = at < heads * p.head_dim ? to_float(p.q[(row * p.heads + head0) * p.head_dim + at]) : 0.0f;
    }
    for (int64_t j = threadIdx.x; j < slots; j += kThreads) room.rows[j] = packed_row(p, row, j);
    __syncthreads();
    score_slots(p, room, heads, slots, stride);
    __syncthreads();
    const int head = threadIdx.x / kLanes;
    if (head < heads) {
      float top = 0.0f, factor = 0.0f;
      if (slots > 0) {
        const float sum = exponentials_by_lanes(room.scores + head * stride, window, slots, kSoftmaxChunk, &top);
        factor = 1.0f / (sum + exp32(p.sink[head0 + head] - top));
      }
      if (threadIdx.x % kLanes == 0) room.factors[head] = factor;
    }
    __syncthreads();
    add_values(p, room, row, head0, heads, slots, stride);
    __syncthreads();
  }
}

// A block per head and row; scores in the caller's scratch, so any picture fits.
__global__ void __launch_bounds__(kThreads) vision_attention_kernel(VisionAttentionParams p) {
  __shared__ float factor;
  const int64_t n = live(p.rows);
  float* scores = p.scratch + blockIdx.x * n;
  const float scale = attention_scale(p.dim);
  for (int64_t i = blockIdx.x; i < n * p.heads; i += gridDim.x) {
    const int64_t row = i / p.heads;
    const int head = static_cast<int>(i % p.heads);
    const Bf16* q = vision_part(p, row, 0, head);
    for (int64_t j = threadIdx.x / kLanes; j < n; j += kThreads / kLanes) {
      const Bf16* k = vision_part(p, j, 1, head);
      const float dot = LanesDot{}(
          p.dim, [=](int d) { return to_float(q[d]); }, [=](int d) { return to_float(k[d]); });
      if (threadIdx.x % kLanes == 0) scores[j] = dot * scale;
    }
    __syncthreads();
    if (threadIdx.x < kLanes) {
      float top;
      const float sum = exponentials_by_lanes(scores, n, n, n, &top);
      if (threadIdx.x == 0) factor = 1.0f / sum;
    }
    __syncthreads();
    for (int d = threadIdx.x; d < p.dim; d += kThreads) {
      float sum = 0.0f;
      for (int64_t j = 0; j < n; ++j) sum = fma32(scores[j], to_float(vision_part(p, j, 2, head)[d]), sum);
      p.o[(row * p.heads + head) * p.dim + d] = to_bf16(sum * factor);
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t prepare_attention() {
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  return error;
}

void run_attention(const GpuContext& c, const AttentionParams& p) {
  const int64_t stride = most_slots(p), items = int64_t{p.rows.capacity} * ((p.heads + kGroup - 1) / kGroup);
  attention_kernel<<<bounded_blocks(items, int64_t{c.multiprocessors} * 4), kThreads,
                     static_cast<size_t>(Room::bytes(p.head_dim, stride)), c.stream>>>(p, stride);
}

void run_vision_attention(const GpuContext& c, const VisionAttentionParams& p) {
  const int64_t most = p.scratch_rows < kScratchRows ? p.scratch_rows : kScratchRows;
  vision_attention_kernel<<<bounded_blocks(int64_t{p.rows.capacity} * p.heads, most), kThreads, 0, c.stream>>>(p);
}

}  // namespace deepinfer::cuda
