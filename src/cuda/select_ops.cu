// Index scores, the exact top-k and candidate blocks: a block of threads per row.
#include "cuda/top_k.cuh"

namespace deepinfer::cuda {

namespace {

constexpr int kSelectThreads = 512;
constexpr int kKeyValues = 16;  // channels of a key per lane in registers: keys up to 256

__device__ float key_value(const IndexKey& key, int i) {
  return e2m1_to_float(nibble_at(key.codes, i)) * e8m0_to_float(key.scales[i / kScaleBlock]);
}

// index_score() (select.h) by sixteen lanes: the key is decoded once, query heads come from shared memory. Lane 0 has it.
__device__ float score_by_lanes(const SelectParams& p, const float* q, const float* weights, const IndexKey& key) {
  const int dim = p.view.index_dim, lane = threadIdx.x % kLanes;
  float k[kKeyValues];
#pragma unroll
  for (int i = 0; i < kKeyValues; ++i) k[i] = i * kLanes + lane < dim ? key_value(key, i * kLanes + lane) : 0.0f;
  float sum = 0.0f;
  for (int h = 0; h < p.heads; ++h) {
    float part = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeyValues; ++i) {
      if (i * kLanes + lane < dim) part = fma32(q[h * dim + i * kLanes + lane], k[i], part);
    }
    sum = fold_score(sum, weights[h], sum_of_lanes(part));
  }
  return sum;
}

__device__ void select_row(const SelectParams& p, int64_t row, float* scores, int64_t listed, CutRoom& room) {
  if (p.scores_out) {
    float* out = p.scores_out + row * p.max_entries;
    for (int64_t i = threadIdx.x; i < p.max_entries; i += kSelectThreads) out[i] = -bits_float(0x7F800000u);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < listed; i += kSelectThreads) out[listed_entry(p, row, i)] = scores[i];
  }
  int32_t* selected = p.selected + row * p.top_k;
  int64_t taken = top_k_by_block(
      room, listed, p.top_k, [=](int64_t i) { return scores[i]; },
      [&](int64_t place, int64_t i) { selected[place] = static_cast<int32_t>(listed_entry(p, row, i)); });
  for (int64_t i = taken + threadIdx.x; i < p.top_k; i += kSelectThreads) selected[i] = -1;
  if (p.mode != SelectMode::kPublishCandidates) return;
  __syncthreads();
  // The best score of each block, in place: a block's score is never behind its entries.
  const int64_t blocks = (listed + p.candidate_block - 1) / p.candidate_block;
  for (int64_t base = 0; base < blocks; base += kSelectThreads) {
    const int64_t b = base + threadIdx.x, begin = b * p.candidate_block;
    const int64_t end = begin + p.candidate_block < listed ? begin + p.candidate_block : listed;
    float top = b < blocks ? scores[begin] : 0.0f;
    for (int64_t i = begin + 1; i < end; ++i) top = max32(top, scores[i]);
    if (b == blocks - 1) top = bits_float(0x7F800000u);  // the newest block always stays
    __syncthreads();
    if (b < blocks) scores[b] = top;
    __syncthreads();
  }
  int32_t* candidates = p.candidates + row * p.candidate_blocks;
  taken = top_k_by_block(
      room, blocks, p.candidate_blocks, [=](int64_t i) { return scores[i]; },
      [&](int64_t place, int64_t i) { candidates[place] = static_cast<int32_t>(i); });
  for (int64_t i = taken + threadIdx.x; i < p.candidate_blocks; i += kSelectThreads) candidates[i] = -1;
}

__global__ void __launch_bounds__(kSelectThreads) select_kernel(SelectParams p) {
  extern __shared__ float4 memory[];
  __shared__ CutRoom room;
  const int dim = p.view.index_dim;
  float* q = reinterpret_cast<float*>(memory);
  float* weights = q + p.heads * dim;
  float* scores = p.score_scratch + blockIdx.x * p.max_entries;
  const int64_t n = live(p.rows);
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const int64_t listed = num_listed(p, row);
    for (int i = threadIdx.x; i < p.heads * dim; i += kSelectThreads) q[i] = to_float(p.q[row * p.heads * dim + i]);
    for (int h = threadIdx.x; h < p.heads; h += kSelectThreads) weights[h] = to_float(p.w[row * p.heads + h]);
    __syncthreads();
    for (int64_t i = threadIdx.x / kLanes; i < listed; i += kSelectThreads / kLanes) {
      const IndexKey key = index_key(p.view, p.slots[row], listed_entry(p, row, i));
      const float score = dim <= kKeyValues * kLanes ? score_by_lanes(p, q, weights, key)
                                                     : index_score(p, row, listed_entry(p, row, i), LanesDot{});
      if (threadIdx.x % kLanes == 0) scores[i] = score;
    }
    __syncthreads();
    select_row(p, row, scores, listed, room);
    __syncthreads();
  }
}

size_t shared_bytes(const SelectParams& p) {
  return static_cast<size_t>(p.heads) * static_cast<size_t>(p.view.index_dim + 1) * sizeof(float);
}

}  // namespace

cudaError_t prepare_select() {
  return cudaFuncSetAttribute(select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 << 10);
}

void run_select(const GpuContext& c, const SelectParams& p) {
  const int64_t most = p.scratch_rows < kScratchRows ? p.scratch_rows : kScratchRows;
  select_kernel<<<bounded_blocks(p.rows.capacity, most), kSelectThreads, shared_bytes(p), c.stream>>>(p);
}

}  // namespace deepinfer::cuda
