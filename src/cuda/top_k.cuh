// cuda/top_k.cuh - find_cut() and top_k_ascending() of ops/portable/select.h by a whole block of threads. Internal.
//
// Histograms add integers, so their order does not matter; what comes out is exactly the portable bodies' set.
#pragma once

#include "cuda/launch.cuh"

namespace deepinfer::cuda {

inline constexpr int kBins = 2048;

// Shared memory of the functions below; the block has at most 1,024 threads.
struct CutRoom {
  unsigned long long histogram[kBins];
  unsigned long long target;
  uint32_t bin;
  unsigned long long each;
  int32_t warps[33];
};

// Which bin, from the top, first brings the sum to `target`; what is left of the target within it. One warp.
__device__ inline void find_bin(CutRoom& room, int bins, unsigned long long target) {
  if (threadIdx.x >= 32) return;
  const int share = bins / 32, top = bins - 1 - static_cast<int>(threadIdx.x) * share;
  unsigned long long own = 0;
  for (int i = 0; i < share; ++i) own += room.histogram[top - i];
  unsigned long long sum = own;
  for (int s = 1; s < 32; s *= 2) {
    const unsigned long long before = __shfl_up_sync(0xFFFFFFFFu, sum, s);
    if (static_cast<int>(threadIdx.x) >= s) sum += before;
  }
  if (sum < target || sum - own >= target) return;
  unsigned long long left = target - (sum - own);
  int bin = top;
  while (room.histogram[bin] < left) left -= room.histogram[bin--];
  room.bin = static_cast<uint32_t>(bin);
  room.target = left;
}

// As find_cut(); all threads get the result.
template <class K, class W>
__device__ Cut find_cut_by_block(CutRoom& room, int64_t n, uint64_t target, K key, W weight) {
  uint32_t cut = 0, known = 0;
  for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift == 10 ? 0 : -1) {
    const int bins = shift == 0 ? 1024 : kBins;
    __syncthreads();
    for (int i = threadIdx.x; i < bins; i += blockDim.x) room.histogram[i] = 0;
    if (threadIdx.x == 0) room.each = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const uint32_t k = key(i);
      if ((k & known) != cut) continue;
      const unsigned long long w = weight(i);
      if (w != 0) atomicAdd(&room.histogram[k >> shift & (bins - 1)], w);
    }
    __syncthreads();
    find_bin(room, bins, target);
    __syncthreads();
    target = room.target;
    cut |= room.bin << shift;
    known |= static_cast<uint32_t>(bins - 1) << shift;
  }
  // Equal keys have equal weights, so it does not matter who writes.
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (key(i) != cut) continue;
    const unsigned long long w = weight(i);
    if (w != 0) room.each = w;
  }
  __syncthreads();
  const uint64_t each = room.each;
  return {cut, static_cast<int64_t>((target + each - 1) / each)};
}

// How many threads before this one have `flag`, and how many in all. All threads of the block call it.
__device__ inline int rank_in_block(CutRoom& room, bool flag, int* total) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const unsigned votes = __ballot_sync(0xFFFFFFFFu, flag);
  __syncthreads();
  if (lane == 0) room.warps[warp] = __popc(votes);
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < warps; ++i) {
      const int own = room.warps[i];
      room.warps[i] = sum;
      sum += own;
    }
    room.warps[warps] = sum;
  }
  __syncthreads();
  *total = room.warps[warps];
  return room.warps[warp] + __popc(votes & ((1u << lane) - 1));
}

// As top_k_ascending(), but emit(place, i) says where in the ascending list entry i stands. Returns how many there are.
template <class V, class E>
__device__ int64_t top_k_by_block(CutRoom& room, int64_t n, int64_t k, V value, E emit) {
  if (n <= k) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) emit(i, i);
    return n;
  }
  const auto key = [&](int64_t i) { return ordered_bits(value(i)); };
  const Cut cut = find_cut_by_block(room, n, static_cast<uint64_t>(k), key, [](int64_t) { return uint64_t{1}; });
  int64_t taken = 0, equal = 0;
  for (int64_t begin = 0; begin < n; begin += blockDim.x) {
    const int64_t i = begin + threadIdx.x;
    const uint32_t own = i < n ? key(i) : 0;
    const bool same = i < n && own == cut.key;
    int total;
    const int64_t before = equal + rank_in_block(room, same, &total);
    equal += total;
    const bool take = i < n && (own > cut.key || (same && before < cut.ties));
    const int64_t place = taken + rank_in_block(room, take, &total);
    taken += total;
    if (take) emit(place, i);
  }
  return taken;
}

}  // namespace deepinfer::cuda
