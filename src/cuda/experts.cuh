// cuda/experts.cuh - which tile of rows belongs to which expert, for kernels over routed pairs. Internal to `cuda`.
#pragma once

#include "cuda/launch.cuh"

namespace deepinfer::cuda {

// The table of weights travels with the launch, so a recorded launch keeps it.
template <int N>
struct ExpertTable {
  const void* data[N];
  const uint8_t* scales[N];
};

template <int N>
ExpertTable<N> expert_table(const GroupedMatmulParams& p) {
  ExpertTable<N> table = {};
  for (int e = 0; e < p.num_experts; ++e) {
    table.data[e] = p.weights[e].data;
    table.scales[e] = p.weights[e].scales;
  }
  return table;
}

// Row tiles of all experts in one line: first[e] is expert e's first. One warp works; the block must meet afterwards.
__device__ inline void number_tiles(const GroupedMatmulParams& p, int rows_of_tile, int32_t* first) {
  if (threadIdx.x >= 32) return;
  const int share = (p.num_experts + 31) / 32, begin = threadIdx.x * share;
  const int end = begin + share < p.num_experts ? begin + share : p.num_experts;
  int32_t count = 0;
  for (int e = begin; e < end; ++e) count += (p.offsets[e + 1] - p.offsets[e] + rows_of_tile - 1) / rows_of_tile;
  int32_t sum = count;
  for (int s = 1; s < 32; s *= 2) {
    const int32_t before = __shfl_up_sync(0xFFFFFFFFu, sum, s);
    if (static_cast<int>(threadIdx.x) >= s) sum += before;
  }
  int32_t at = sum - count;
  for (int e = begin; e < end; ++e) {
    first[e] = at;
    at += (p.offsets[e + 1] - p.offsets[e] + rows_of_tile - 1) / rows_of_tile;
  }
  if (threadIdx.x == 31) first[p.num_experts] = sum;
}

// The expert of row tile `number`, its pairs from `pair` on and how many of them are left for this tile and those after it.
struct ExpertTile {
  int expert;
  int64_t pair, left;
};
__device__ inline ExpertTile expert_tile(const GroupedMatmulParams& p, const int32_t* first, int rows_of_tile, int32_t number) {
  int low = 0, high = p.num_experts - 1;  // the last expert whose first tile is not after this one
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first[middle] <= number) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t pair = p.offsets[low] + int64_t{number - first[low]} * rows_of_tile;
  return {low, pair, p.offsets[low + 1] - pair};
}

}  // namespace deepinfer::cuda
