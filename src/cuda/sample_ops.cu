// One draw per row of logits by a block of threads: the rules of ops/portable/sample.h, term by term.
#include "cuda/top_k.cuh"

namespace deepinfer::cuda {

namespace {

constexpr int kSampleThreads = 1024;

struct Best {
  float value;
  int32_t token;  // -1: none
};

__device__ Best better_of(Best a, Best b) {
  if (b.token < 0) return a;
  return a.token < 0 || better(b.value, b.token, a.value, a.token) ? b : a;
}

struct SampleRoom {
  CutRoom cut;
  Best warps[32];
  Best best;
  unsigned long long sums[2];
};

// The best of all threads' candidates; all get it.
__device__ Best best_of_block(SampleRoom& room, Best own) {
  for (int s = 16; s >= 1; s /= 2) {
    const Best other = {__shfl_xor_sync(0xFFFFFFFFu, own.value, s), __shfl_xor_sync(0xFFFFFFFFu, own.token, s)};
    own = better_of(own, other);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) room.warps[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kSampleThreads / 32; ++i) own = better_of(own, room.warps[i]);
    room.best = own;
  }
  __syncthreads();
  return room.best;
}

// The largest value above kNever and its first index, where `kept(i)`.
template <class F>
__device__ Best argmax_by_block(SampleRoom& room, const float* z, int32_t n, F kept) {
  Best own = {kNever, -1};
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) {
    if (z[i] > kNever && kept(i)) own = better_of(own, {z[i], i});
  }
  return best_of_block(room, own);
}

__device__ void prepare_by_block(const SampleParams& p, int64_t row, float* z) {
  const float* logits = p.logits + row * p.vocab;
  const SampleRow& s = p.settings[row];
  for (int i = threadIdx.x; i < p.vocab; i += kSampleThreads) z[i] = logits[i];
  __syncthreads();
  // Few, and in order: a token may be biased twice.
  if (threadIdx.x == 0) apply_bias_and_penalties(p, s, z);
  __syncthreads();
  const uint32_t* mask = p.masks ? p.masks + row * p.mask_words : nullptr;
  for (int i = threadIdx.x; i < p.vocab; i += kSampleThreads) {
    if (!is_finite32(z[i]) || (mask && (mask[i >> 5] >> (i & 31) & 1) == 0)) z[i] = kNever;
  }
  __syncthreads();
}

// Integers of all threads added; all get the sum.
__device__ uint64_t sum_by_block(unsigned long long& total, uint64_t own) {
  __syncthreads();
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if (own != 0) atomicAdd(&total, static_cast<unsigned long long>(own));
  __syncthreads();
  return total;
}

// truncate() of the portable body.
__device__ Cut truncate_by_block(SampleRoom& room, const SampleRow& s, const float* z, const float* e, int32_t n) {
  const auto key = [=](int64_t i) { return ordered_bits(z[i]); };
  const auto drawable = [=](int64_t i) { return uint64_t{z[i] > kNever}; };
  Cut cut = {0, int64_t{n}};
  uint64_t own = 0;
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) own += drawable(i);
  const uint64_t count = sum_by_block(room.sums[0], own);
  if (s.top_k > 0 && static_cast<uint64_t>(s.top_k) < count) {
    cut = find_cut_by_block(room.cut, n, static_cast<uint64_t>(s.top_k), key, drawable);
  }
  if (s.top_p >= 1.0f) return cut;
  own = 0;
  __syncthreads();
  if (threadIdx.x == 0) room.sums[1] = 0;
  __syncthreads();
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) {
    const uint64_t mass = mass_of(e[i]);
    own += key(i) > cut.key ? mass : 0;
    if (key(i) == cut.key) room.sums[1] = mass;  // equal logits, equal masses
  }
  uint64_t total = sum_by_block(room.sums[0], own);
  if (cut.key > 0) total += room.sums[1] * static_cast<uint64_t>(cut.ties);
  const double wanted = static_cast<double>(s.top_p) * static_cast<double>(total);
  uint64_t target = static_cast<uint64_t>(wanted);
  target += static_cast<double>(target) < wanted;
  target = target < 1 ? 1 : target > total ? total : target;
  const uint32_t floor = cut.key;
  const Cut narrow =
      find_cut_by_block(room.cut, n, target, key, [=](int64_t i) { return key(i) >= floor ? mass_of(e[i]) : uint64_t{0}; });
  return narrow.key > cut.key || narrow.ties < cut.ties ? narrow : cut;
}

// visit(i, kept) for this thread's tokens: everything above the cut is kept, and the first `ties` of those at it.
template <class F>
__device__ void each_token(SampleRoom& room, const float* z, int32_t n, Cut cut, F visit) {
  int64_t equal = 0;
  for (int32_t begin = 0; begin < n; begin += kSampleThreads) {
    const int32_t i = begin + static_cast<int32_t>(threadIdx.x);
    const bool there = i < n && z[i] > kNever;
    const uint32_t k = there ? ordered_bits(z[i]) : 0;
    bool kept = there && k >= cut.key;
    if (cut.key > 0) {
      int total;
      const int64_t before = equal + rank_in_block(room.cut, there && k == cut.key, &total);
      equal += total;
      if (k == cut.key && before >= cut.ties) kept = false;
    }
    if (i < n) visit(i, kept);
  }
}

// draw() of the portable body.
__device__ int32_t draw_by_block(SampleRoom& room, const SampleRow& s, const float* z, const float* e, int32_t n, int32_t first,
                                 Cut cut) {
  const DrawKey draw_key = {s.seed, s.position, s.stream};
  Best own = {0.0f, -1};
  if (threadIdx.x == 0) own = {z[first] / s.temperature + gumbel(draw_key, first), first};
  const float floor = z[first] / s.temperature + gumbel(draw_key, first);
  each_token(room, z, n, cut, [&](int32_t i, bool kept) {
    if (!kept || (s.min_p > 0.0f && e[i] < s.min_p)) return;
    if (z[i] / s.temperature + kLargestGumbel < floor) return;  // cannot win
    own = better_of(own, {z[i] / s.temperature + gumbel(draw_key, i), i});
  });
  return best_of_block(room, own).token;
}

// kept_masses() of the portable body.
__device__ uint64_t kept_masses_by_block(SampleRoom& room, const SampleRow& s, const float* z, float* e, int32_t n, float top) {
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) e[i] = exp32((z[i] - top) / s.temperature);
  __syncthreads();
  Cut cut = {0, 0};
  if (s.top_k > 0 || s.top_p < 1.0f) cut = truncate_by_block(room, s, z, e, n);
  uint64_t own = 0;
  each_token(room, z, n, cut, [&](int32_t i, bool kept) {
    if (!kept || !(e[i] >= s.min_p)) e[i] = 0.0f;
    own += mass_of(e[i]);
  });
  return sum_by_block(room.sums[0], own);
}

// draw_by_rejection() of the portable body.
__device__ int32_t draw_by_rejection_by_block(SampleRoom& room, const SampleParams& p, const SampleRow& s, const float* z,
                                              float* scratch, Best first) {
  const int32_t n = p.vocab;
  const float* logits = p.draft_logits + int64_t{s.draft_row} * n;
  float *target = scratch, *draft_z = scratch + n, *draft = scratch + 2 * int64_t{n};
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) {
    draft_z[i] = is_finite32(logits[i]) ? logits[i] : kNever;
  }
  __syncthreads();
  const Best draft_first = argmax_by_block(room, draft_z, n, [](int32_t) { return true; });
  if (draft_first.token < 0) return first.token;
  const auto total = static_cast<double>(kept_masses_by_block(room, s, z, target, n, first.value));
  const auto draft_total = static_cast<double>(kept_masses_by_block(room, s, draft_z, draft, n, draft_first.value));
  const Overlap overlap = {target, draft, total, draft_total};
  if (accept_draft(s, overlap)) return s.draft;
  uint64_t own = 0;
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) own += residual_mass(overlap, i);
  const bool more = has_residual(sum_by_block(room.sums[0], own));
  Best best = {kNever, -1};
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) {
    const float logit = residual_logit(overlap, more, i);
    if (logit <= kNever || logit + kLargestGumbel < best.value) continue;
    best = better_of(best, {logit + gumbel({s.seed, s.position, kResidualStream}, i), i});
  }
  best = best_of_block(room, best);
  return best.token < 0 ? first.token : best.token;
}

// fill_logprobs() of the portable body; `e` is overwritten.
__device__ void logprobs_by_block(SampleRoom& room, const SampleRow& s, const float* z, float* e, int32_t n, float top,
                                  SampleResult& result, int32_t token) {
  if (threadIdx.x == 0) {
    result.token = token;
    result.num_top = 0;
    result.logprob = 0.0f;
  }
  if (s.num_logprobs < 0 || token < 0) return;
  const float temperature = s.temperature > 0.0f ? s.temperature : 1.0f;
  for (int32_t i = threadIdx.x; i < n; i += kSampleThreads) e[i] = exp32((z[i] - top) / temperature);
  __syncthreads();
  float norm = 0.0f;
  if (threadIdx.x < kLanes) {
    norm = log32(LanesDot{}(
        n, [=](int i) { return e[i]; }, [](int) { return 1.0f; }));
  }
  if (threadIdx.x == 0) result.logprob = (z[token] - top) / temperature - norm;
  const int wanted = s.num_logprobs < kMaxTopLogprobs ? s.num_logprobs : kMaxTopLogprobs;
  Best last = {0.0f, -1};
  for (int k = 0; k < wanted; ++k) {
    const Best next =
        argmax_by_block(room, z, n, [=](int32_t i) { return last.token < 0 || better(last.value, last.token, z[i], i); });
    if (next.token < 0) break;
    last = next;
    if (threadIdx.x != 0) continue;
    result.top_tokens[k] = next.token;
    result.top_logprobs[k] = (next.value - top) / temperature - norm;
    result.num_top = k + 1;
  }
}

__global__ void __launch_bounds__(kSampleThreads) sample_kernel(SampleParams p) {
  __shared__ SampleRoom room;
  float* z = p.scratch + int64_t{blockIdx.x} * sample_scratch(p);
  float* e = z + p.vocab;
  const int64_t rows = live(p.rows);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const SampleRow& s = p.settings[row];
    prepare_by_block(p, row, z);
    const Best first = argmax_by_block(room, z, p.vocab, [](int32_t) { return true; });
    int32_t token = first.token;
    if (token >= 0 && s.temperature > 0.0f && has_draft(p, s)) {
      token = draw_by_rejection_by_block(room, p, s, z, e, first);
    } else if (token >= 0 && s.temperature > 0.0f) {
      if (s.top_p < 1.0f || s.min_p > 0.0f) {
        for (int32_t i = threadIdx.x; i < p.vocab; i += kSampleThreads) e[i] = exp32((z[i] - first.value) / s.temperature);
        __syncthreads();
      }
      Cut cut = {0, 0};
      if (s.top_k > 0 || s.top_p < 1.0f) cut = truncate_by_block(room, s, z, e, p.vocab);
      token = draw_by_block(room, s, z, e, p.vocab, first.token, cut);
    }
    __syncthreads();
    logprobs_by_block(room, s, z, e, p.vocab, first.token >= 0 ? first.value : 0.0f, p.results[row], token);
    __syncthreads();
  }
}

}  // namespace

void run_sample(const GpuContext& c, const SampleParams& p) {
  const int64_t most = p.scratch_rows < kScratchRows ? p.scratch_rows : kScratchRows;
  sample_kernel<<<bounded_blocks(p.rows.capacity, most), kSampleThreads, 0, c.stream>>>(p);
}

}  // namespace deepinfer::cuda
