// Operations that are portable bodies spread over threads: by channel, by block of channels, or a row by a block of threads.
#include "cuda/launch.cuh"

namespace deepinfer::cuda {

void run_take_draws(const GpuContext& c, const TakeDrawsParams& p) {
  each_item(c, p.rows, 1, [p] __device__(int64_t row, int64_t) { take_draw(p, row); });
}

void run_embed(const GpuContext& c, const EmbedParams& p) {
  each_item(c, p.rows, p.hidden,
            [p] __device__(int64_t row, int64_t d) { embed_range(p, row, static_cast<int>(d), static_cast<int>(d) + 1); });
}

void run_gather_rows(const GpuContext& c, const GatherRowsParams& p) {
  const auto address =
      reinterpret_cast<uintptr_t>(p.src) | reinterpret_cast<uintptr_t>(p.dst) | static_cast<uintptr_t>(p.row_bytes);
  if (address % sizeof(uint4) == 0) {  // streams of a row, results of experts: all of the model's
    const int64_t words = p.row_bytes / static_cast<int64_t>(sizeof(uint4));
    each_item(c, p.rows, words, [p, words] __device__(int64_t row, int64_t i) {
      const int64_t index = p.index[row];
      const uint4 zero = {0, 0, 0, 0};
      static_cast<uint4*>(p.dst)[row * words + i] = index < 0 ? zero : static_cast<const uint4*>(p.src)[index * words + i];
    });
    return;
  }
  each_item(c, p.rows, p.row_bytes, [p] __device__(int64_t row, int64_t i) { gather_range(p, row, i, i + 1); });
}

void run_rms_norm(const GpuContext& c, const RmsNormParams& p) {
  each_row(c, p.rows, kThreads, [p] __device__(int64_t row) {
    __shared__ float room[2 * StagedDot::kStage + 1];
    const float factor = rms_factor(p.x + row * p.stride_x, p.width, p.eps, StagedDot{room});
    for (int i = threadIdx.x; i < p.width; i += kThreads) rms_norm_at(p, row, i, factor);
  });
}

namespace {

// The dots wait in the places of the results: first those of pre, then post, then comb.
__device__ float& mix_place(const MixParams& p, int64_t row, int i) {
  const int s = p.streams;
  if (i < s) return p.pre[row * s + i];
  return i < 2 * s ? p.post[row * s + i - s] : p.comb[row * s * s + i - 2 * s];
}

__global__ void __launch_bounds__(kThreads) mix_dots_kernel(MixParams p) {
  __shared__ float room[2 * StagedDot::kStage + 1];
  const int outputs = 2 * p.streams + p.streams * p.streams;
  const int64_t n = live(p.rows) * outputs;
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const float dot = mix_dot(p, i / outputs, static_cast<int>(i % outputs), StagedDot{room});
    if (threadIdx.x == 0) mix_place(p, i / outputs, static_cast<int>(i % outputs)) = dot;
  }
}

}  // namespace

void run_mix(const GpuContext& c, const MixParams& p) {
  const int s = p.streams, outputs = 2 * s + s * s;
  mix_dots_kernel<<<bounded_blocks(int64_t{p.rows.capacity} * outputs, int64_t{c.multiprocessors} * 6), kThreads, 0, c.stream>>>(
      p);
  each_row(c, p.rows, kThreads, [p] __device__(int64_t row) {
    __shared__ float room[2 * StagedDot::kStage + 1];
    __shared__ float comb[kMaxStreams * kMaxStreams];
    const int s = p.streams, i = static_cast<int>(threadIdx.x), k = s * p.hidden;
    const float factor = rms_factor(p.x + row * k, k, p.eps, StagedDot{room});
    if (i < s) mix_gates(p, row, i, p.pre[row * s + i], p.post[row * s + i], factor);
    if (i < s * s) comb[i] = mix_comb(p, i, p.comb[row * s * s + i], factor);
    __syncthreads();
    if (i < 32) {  // sinkhorn() by one thread per line
      if (i < s) sinkhorn_start(comb + i * s, s, p.hc_eps);
      __syncwarp();
      for (int round = 0; round < p.iterations; ++round) {
        if (round > 0 && i < s) sinkhorn_line(comb + i * s, 1, s, p.hc_eps);
        __syncwarp();
        if (i < s) sinkhorn_line(comb + i, s, s, p.hc_eps);
        __syncwarp();
      }
    }
    __syncthreads();
    if (i < s * s) p.comb[row * s * s + i] = comb[i];
  });
}

void run_collapse_norm(const GpuContext& c, const CollapseNormParams& p) {
  each_row(c, p.rows, kThreads, [p] __device__(int64_t row) {
    __shared__ float room[2 * StagedDot::kStage + 1];
    for (int d = threadIdx.x; d < p.hidden; d += kThreads) collapse_to_u(p, row, d, d + 1);
    __syncthreads();
    const float factor = rms_factor(p.u + row * p.hidden, p.hidden, p.eps, StagedDot{room});
    for (int d = threadIdx.x; d < p.hidden; d += kThreads) norm_u_at(p, row, d, factor);
  });
}

void run_expand(const GpuContext& c, const ExpandParams& p) {
  each_item(c, p.rows, p.hidden,
            [p] __device__(int64_t row, int64_t d) { expand_range(p, row, static_cast<int>(d), static_cast<int>(d) + 1); });
}

void run_tap(const GpuContext& c, const TapParams& p) {
  each_item(c, p.rows, p.hidden,
            [p] __device__(int64_t row, int64_t d) { tap_range(p, row, static_cast<int>(d), static_cast<int>(d) + 1); });
}

void run_quantize(const GpuContext& c, const QuantizeParams& p) {
  each_item(c, p.rows, p.width / kScaleBlock,
            [p] __device__(int64_t row, int64_t b) { quantize_block(p, row, static_cast<int>(b)); });
}

void run_pointwise(const GpuContext& c, const PointwiseParams& p) {
  each_item(c, p.rows, p.width, [p] __device__(int64_t row, int64_t i) { pointwise_at(p, row, static_cast<int>(i)); });
}

void run_markov(const GpuContext& c, const MarkovParams& p) {
  each_item(c, p.rows, int64_t{p.vocab} * kLanes, [p] __device__(int64_t row, int64_t i) {
    const int64_t v = i / kLanes;
    const float value = markov_logit(p, row, v, LanesDot{});
    if (i % kLanes == 0) p.logits[row * p.logits_stride + v] = value;
  });
}

void run_confidence(const GpuContext& c, const ConfidenceParams& p) {
  each_item(c, p.rows, kLanes, [p] __device__(int64_t row, int64_t i) {
    const float value = confidence_of(p, row, LanesDot{});
    if (i == 0) p.conf[row * p.conf_stride] = value;
  });
}

void run_engram_hash(const GpuContext& c, const EngramHashParams& p) {
  each_item(c, p.rows, 1, [p] __device__(int64_t row, int64_t) { engram_hash_row(p, row); });
  each_item(c, p.rows, 1, [p] __device__(int64_t row, int64_t) { engram_history_row(p, row); });
}

void run_engram_gather(const GpuContext& c, const EngramGatherParams& p) {
  const int blocks = p.dim / kScaleBlock;
  each_item(c, p.rows, int64_t{p.columns} * blocks, [p, blocks] __device__(int64_t row, int64_t i) {
    // The table may lie behind the bus: 32 codes in two reads.
    const int64_t from = p.hash_rows[row * p.columns + i / blocks] * blocks + i % blocks;
    const float scale = e8m0_to_float(p.scales[from]);
    uint4 codes[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) codes[half] = reinterpret_cast<const uint4*>(p.codes)[from * 2 + half];
    Bf16* to = p.e + (row * p.columns * blocks + i) * kScaleBlock;
#pragma unroll
    for (int k = 0; k < kScaleBlock; ++k) to[k] = to_bf16(e4m3_to_float(reinterpret_cast<const uint8_t*>(codes)[k]) * scale);
  });
}

void run_engram_mix(const GpuContext& c, const EngramMixParams& p) {
  each_row(c, p.rows, kThreads, [p] __device__(int64_t row) {
    __shared__ float room[2 * StagedDot::kStage + 1];
    for (int s = 0; s < p.streams; ++s) {
      const float gate = engram_gate(p, row, s, StagedDot{room});
      if (threadIdx.x == 0 && p.gates_out) p.gates_out[row * p.streams + s] = gate;
      for (int d = threadIdx.x; d < p.hidden; d += kThreads) engram_add_at(p, row, s, d, gate);
    }
  });
}

void run_vision_rope(const GpuContext& c, const VisionRopeParams& p) {
  each_item(c, p.rows, p.dim / 2, [p] __device__(int64_t row, int64_t i) { vision_rope_at(p, row, static_cast<int>(i)); });
}

namespace {
__global__ void unfold_kernel(UnfoldParams p, int64_t n, int patches) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) unfold_patch(p, i / patches, static_cast<int>(i % patches));
}
__global__ void read_kernel(const uint4* from, int64_t words, float* sink) {
  uint32_t sum = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    const uint4 w = from[i];
    sum += w.x ^ w.y ^ w.z ^ w.w;
  }
  sink[int64_t{blockIdx.x} * blockDim.x + threadIdx.x] = static_cast<float>(sum);
}
}  // namespace

// Its row count is known to the host.
void run_unfold(const GpuContext& c, const UnfoldParams& p) {
  const int patches = p.downsample * p.downsample;
  const int64_t n = unfolded_rows(p) * patches;
  unfold_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, c.stream>>>(p, n, patches);
}

void run_read(const GpuContext& c, const void* from, int64_t bytes, float* sink) {
  read_kernel<<<static_cast<unsigned>(c.multiprocessors * 16), kThreads, 0, c.stream>>>(static_cast<const uint4*>(from),
                                                                                        bytes / 16, sink);
}

}  // namespace deepinfer::cuda
