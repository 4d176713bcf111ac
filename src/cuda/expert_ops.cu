// Routing, grouping, the gated unit, combination.
#include "cuda/launch.cuh"

namespace deepinfer::cuda {

// One warp per row: scores side by side, then the best key again and again, ties to the lower id.
void run_route(const GpuContext& c, const RouteParams& p) {
  each_row(c, p.rows, 32, [p] __device__(int64_t row) {
    __shared__ float score[kMaxExperts], key[kMaxExperts];
    __shared__ bool taken[kMaxExperts];
    const float* logits = p.logits + row * p.experts;
    const float* bias = p.is_image && p.is_image[row] ? p.bias_image : p.bias;
    for (int e = threadIdx.x; e < p.experts; e += 32) {
      score[e] = expert_score(logits[e]);
      key[e] = score[e] + bias[e];
      taken[e] = false;
    }
    __syncwarp();
    for (int k = 0; k < p.top_k; ++k) {
      int best = -1;
      for (int e = threadIdx.x; e < p.experts; e += 32) {
        if (!taken[e] && (best < 0 || key[e] > key[best])) best = e;
      }
      for (int s = 16; s >= 1; s /= 2) {
        const int other = __shfl_xor_sync(0xFFFFFFFFu, best, s);
        if (other < 0) continue;
        if (best < 0 || key[other] > key[best] || (key[other] == key[best] && other < best)) best = other;
      }
      if (threadIdx.x == 0) taken[best] = true;
      __syncwarp();
    }
    if (threadIdx.x == 0) write_route(p, row, taken, score);
  });
}

namespace {

constexpr int kGroupThreads = 1024;

// A stable counting sort by one block: thread e counts and places the pairs of expert e in their order. Every thread reads
// all ids, a broadcast; 12,288 pairs (2,048 rows) of 384 experts are read from the cache in some 50 us.
__global__ void __launch_bounds__(kGroupThreads) group_pairs_kernel(GroupPairsParams p) {
  __shared__ int32_t offsets[kMaxExperts + 1];
  const int pairs = static_cast<int>(live(p.rows)) * p.top_k;
  for (int i = threadIdx.x; i < pairs; i += kGroupThreads) p.pair_of[i] = -1;
  for (int e = threadIdx.x; e < p.num_experts; e += kGroupThreads) {
    int count = 0;
    for (int i = 0; i < pairs; ++i) count += p.ids[i] - p.first_expert == e;
    offsets[e + 1] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    offsets[0] = 0;
    for (int e = 0; e < p.num_experts; ++e) offsets[e + 1] += offsets[e];
    *p.num_pairs = offsets[p.num_experts];
  }
  __syncthreads();
  for (int e = threadIdx.x; e <= p.num_experts; e += kGroupThreads) p.offsets[e] = offsets[e];
  for (int e = threadIdx.x; e < p.num_experts; e += kGroupThreads) {
    int at = offsets[e];
    for (int i = 0; at < offsets[e + 1]; ++i) {
      if (p.ids[i] - p.first_expert != e) continue;
      p.pair_row[at] = i / p.top_k;
      p.pair_slot[at] = i % p.top_k;
      p.pair_of[i] = at++;
    }
  }
}

}  // namespace

void run_group_pairs(const GpuContext& c, const GroupPairsParams& p) { group_pairs_kernel<<<1, kGroupThreads, 0, c.stream>>>(p); }

void run_expert_home(const GpuContext& c, const ExpertHomeParams& p) {
  each_item(c, p.rows, 1, [p] __device__(int64_t row, int64_t) { expert_home_row(p, row); });
}

void run_swiglu_quantize(const GpuContext& c, const SwigluQuantizeParams& p) {
  each_item(c, p.rows, p.width / kScaleBlock,
            [p] __device__(int64_t row, int64_t b) { swiglu_quantize_block(p, row, static_cast<int>(b)); });
}

void run_combine(const GpuContext& c, const CombineParams& p) {
  each_item(c, p.rows, p.width,
            [p] __device__(int64_t row, int64_t d) { combine_range(p, row, static_cast<int>(d), static_cast<int>(d) + 1); });
}

}  // namespace deepinfer::cuda
