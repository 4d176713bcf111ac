// Matrix products in PRODUCT order on FP32 units: bit for bit the CPU's.
//
// The sums of blocks of 32 columns do not depend on each other, so each lane of a warp takes one block of an output (32
// neighbouring weights, as stored) for several rows at once, and 32 lanes cover 1,024 columns. What must be in order, the
// chain over blocks, follows from shared memory: lane (column, row) walks its 32 block sums. How many rows and columns a tile has
// follows from the live rows and changes no bit.
// Decoding a token waits for memory and little else, so everything of the next 1,024 columns is on its way while these are
// multiplied. (Loads where they were used: 8 ms a token for four layers of the release's sizes on an H200, 16 us for each
// 1,024 columns of a tile.)
#include "cuda/experts.cuh"

namespace deepinfer::cuda {

namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kChunkBlocks = 32;                    // blocks of columns per pass, one per lane
constexpr int kChunk = kChunkBlocks * kScaleBlock;  // columns per pass
constexpr int kThreadColumns = kChunk / kThreads;   // of a row of x that one thread brings
constexpr int kBlockStride = kScaleBlock + 4;       // floats; lanes read 16 bytes each without bank conflicts
constexpr int kSumStride = kChunkBlocks + 1;
static_assert(kThreadColumns == 4);

// R rows x C columns per warp.
template <int R, int C>
struct Tile {
  float x[R][kChunkBlocks * kBlockStride];
  float sums[kWarps][C * R][kSumStride];
  float scales[kWarps][C][kSumStride];
  static constexpr int columns = kWarps * C;
  static_assert(R * C <= 32);
};

using LargestTile = Tile<8, 2>;

// 32 weights of one output as stored, and the scale of their block.
template <WeightFormat kFormat>
struct Packed {
  static constexpr int kWords = kFormat == WeightFormat::kBf16 ? 16 : kFormat == WeightFormat::kF8Tile ? 8 : 4;
  uint32_t words[kWords];
  float scale;
};

template <WeightFormat kFormat>
__device__ void load_block(const Matrix& w, int64_t row, int64_t block, Packed<kFormat>& out) {
  constexpr int kWords = Packed<kFormat>::kWords;
  out.scale = block_scale(w, row, block);
  if (kFormat == WeightFormat::kBf16 && (w.k % 8 != 0 || (block + 1) * kScaleBlock > w.k)) {
    // Rows that are not aligned to 16 bytes (the patch embedding), and the last block, which may be short.
    const Bf16* from = static_cast<const Bf16*>(w.data) + row * w.k + block * kScaleBlock;
    const int64_t left = w.k - block * kScaleBlock;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t low = 2 * i < left ? from[2 * i].bits : 0, high = 2 * i + 1 < left ? from[2 * i + 1].bits : 0;
      out.words[i] = low | high << 16;
    }
    return;
  }
  constexpr int kBytes = kWords * 4;
  const auto* from =
      reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(w.data) + row * w.k * kBytes / kScaleBlock + block * kBytes);
#pragma unroll
  for (int i = 0; i < kWords / 4; ++i) {
    const uint4 v = __ldg(from + i);
    out.words[4 * i] = v.x, out.words[4 * i + 1] = v.y, out.words[4 * i + 2] = v.z, out.words[4 * i + 3] = v.w;
  }
}

// Weight i without the scale of its block; the bits of weight_code() (quant.h).
template <WeightFormat kFormat>
__device__ float code_of(const Packed<kFormat>& packed, int i) {
  if constexpr (kFormat == WeightFormat::kFp4) {
    const uint32_t code = packed.words[i / 8] >> (i % 8 * 4);
    // Exponent and mantissa moved to where FP32 has them are 2^-126 times the value, the subnormal 0.5 included.
    return bits_float((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
  } else if constexpr (kFormat == WeightFormat::kF8Tile) {
    const uint32_t code = packed.words[i / 4] >> (i % 4 * 8);
    return bits_float((code & 0x80u) << 24 | (code & 0x7Fu) << 20);
  } else {
    return bits_float(i % 2 ? packed.words[i / 2] & 0xFFFF0000u : packed.words[i / 2] << 16);
  }
}

// Sums of one block of one output with R rows of x; `count` columns are there.
template <int R, WeightFormat kFormat>
__device__ void block_sums(const Packed<kFormat>& packed, const float (*x)[kChunkBlocks * kBlockStride], int lane, int count,
                           float* sums) {
#pragma unroll
  for (int r = 0; r < R; ++r) sums[r] = 0.0f;
  if (kFormat == WeightFormat::kBf16 && count < kScaleBlock) {
#pragma unroll
    for (int i = 0; i < kScaleBlock; ++i) {
      if (i >= count) break;
      for (int r = 0; r < R; ++r) sums[r] = fma32(x[r][lane * kBlockStride + i], code_of(packed, i), sums[r]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kScaleBlock; i += 4) {
    const float code[4] = {code_of(packed, i), code_of(packed, i + 1), code_of(packed, i + 2), code_of(packed, i + 3)};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float4 v = *reinterpret_cast<const float4*>(&x[r][lane * kBlockStride + i]);
      sums[r] = fma32(v.x, code[0], sums[r]);
      sums[r] = fma32(v.y, code[1], sums[r]);
      sums[r] = fma32(v.z, code[2], sums[r]);
      sums[r] = fma32(v.w, code[3], sums[r]);
    }
  }
}

// Inputs as stored: four neighbouring columns of a row, on their way to shared memory.
struct Bf16Input {
  const Bf16* x;
  int64_t stride;
  struct Raw {
    Bf16 v[kThreadColumns];
  };
  __device__ void load(int row, int64_t k, int64_t end, Raw& raw) const {
#pragma unroll
    for (int i = 0; i < kThreadColumns; ++i) raw.v[i] = k + i < end ? x[row * stride + k + i] : Bf16{0};
  }
  static __device__ float value(const Raw& raw, int i) { return to_float(raw.v[i]); }
};

struct Q8Input {
  const uint8_t* codes;
  const uint8_t* scales;
  const int32_t* row_of;  // or null
  int64_t row0, stride, first;
  struct Raw {
    uint32_t codes;
    uint8_t scale;
  };
  __device__ void load(int row, int64_t k, int64_t end, Raw& raw) const {
    if (k >= end) return;
    const int64_t at = (row_of ? row_of[row0 + row] : row0 + row) * stride + first + k;
    raw.codes = *reinterpret_cast<const uint32_t*>(codes + at);
    raw.scale = scales[at / kScaleBlock];
  }
  static __device__ float value(const Raw& raw, int i) {
    return e4m3_to_float(static_cast<uint8_t>(raw.codes >> (8 * i))) * e8m0_to_float(raw.scale);
  }
};

// R x (kWarps * C) outputs by one block: columns [first, end) of w; results to `store(row, column, sum)`.
template <WeightFormat kFormat, int R, int C, class Input, class Store>
__device__ void run_tile(Tile<R, C>& tile, const Matrix& w, int64_t first, int64_t end, int rows, const Input& input,
                         Store store) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = static_cast<int>((w.k + kScaleBlock - 1) / kScaleBlock);
  const float factor = input_factor(kFormat);
  const int own = static_cast<int>(threadIdx.x) * kThreadColumns;  // of x, within the chunk
  Packed<kFormat> packed[C];
  typename Input::Raw raw[R];
  const auto load = [&](int chunk) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int64_t column = first + warp * C + c;
      if (column < end && chunk + lane < blocks) load_block<kFormat>(w, column, chunk + lane, packed[c]);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r < rows) input.load(r, int64_t{chunk} * kScaleBlock + own, w.k, raw[r]);
    }
  };
  load(0);
  float y = 0.0f;
  for (int chunk = 0; chunk < blocks; chunk += kChunkBlocks) {
    __syncthreads();  // everybody is done with the chunk before
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= rows) continue;
      float4 v = {Input::value(raw[r], 0) * factor, Input::value(raw[r], 1) * factor, Input::value(raw[r], 2) * factor,
                  Input::value(raw[r], 3) * factor};
      *reinterpret_cast<float4*>(&tile.x[r][own / kScaleBlock * kBlockStride + own % kScaleBlock]) = v;
    }
    Packed<kFormat> now[C];
#pragma unroll
    for (int c = 0; c < C; ++c) now[c] = packed[c];
    __syncthreads();
    if (chunk + kChunkBlocks < blocks) load(chunk + kChunkBlocks);
    if (chunk + lane < blocks) {
      const int64_t left = w.k - int64_t{chunk + lane} * kScaleBlock;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float sums[R];
        block_sums<R, kFormat>(now[c], tile.x, lane, static_cast<int>(left < kScaleBlock ? left : kScaleBlock), sums);
#pragma unroll
        for (int r = 0; r < R; ++r) tile.sums[warp][c * R + r][lane] = sums[r];
        tile.scales[warp][c][lane] = now[c].scale;
      }
    }
    __syncwarp();
    if (lane < R * C) {
      const int last = blocks - chunk < kChunkBlocks ? blocks - chunk : kChunkBlocks;
#pragma unroll 8
      for (int b = 0; b < last; ++b) y = fma32(tile.sums[warp][lane][b], tile.scales[warp][lane / R][b], y);
    }
    __syncwarp();
  }
  const int64_t column = first + warp * C + lane / R;
  if (lane < R * C && column < end && lane % R < rows) store(lane % R, column, y);
}

// ---- one weight -----------------------------------------------------------------------------------------------

template <WeightFormat kFormat, int R, int C>
__device__ void matmul_tiles(const MatmulParams& p, int64_t n, void* shared) {
  auto& tile = *static_cast<Tile<R, C>*>(shared);
  const int64_t per_group = p.w.n / p.groups, across = (per_group + tile.columns - 1) / tile.columns;
  const int64_t down = (n + R - 1) / R;
  // Row tiles of the same columns run side by side, so weights come from memory once.
  for (int64_t i = blockIdx.x; i < down * across * p.groups; i += gridDim.x) {
    const int64_t row0 = i % down * R, group = i / down / across, first = i / down % across * tile.columns;
    const int64_t begin = group * per_group + first;
    const int64_t end = first + tile.columns < per_group ? begin + tile.columns : (group + 1) * per_group;
    const int rows = static_cast<int>(n - row0 < R ? n - row0 : R);
    const auto store = [&](int r, int64_t column, float value) { store_matmul(p, row0 + r, column, value); };
    if (p.x) {
      const Bf16Input input = {p.x + row0 * p.x_stride + group * p.w.k, p.x_stride};
      run_tile<kFormat, R, C>(tile, p.w, begin, end, rows, input, store);
    } else {
      const Q8Input input = {p.codes, p.scales, nullptr, row0, int64_t{p.groups} * p.w.k, group * p.w.k};
      run_tile<kFormat, R, C>(tile, p.w, begin, end, rows, input, store);
    }
  }
}

template <WeightFormat kFormat>
__global__ void __launch_bounds__(kThreads, 2) matmul_kernel(const __grid_constant__ MatmulParams p) {
  extern __shared__ float4 shared[];
  const int64_t n = live(p.rows);
  // BF16 weights take twice the registers of e4m3: one output per warp then.
  if (n <= 1) {
    matmul_tiles<kFormat, 1, kFormat == WeightFormat::kBf16 ? 1 : 2>(p, n, shared);
  } else {
    matmul_tiles<kFormat, 8, kFormat == WeightFormat::kBf16 ? 1 : 2>(p, n, shared);
  }
}

// ---- many experts ---------------------------------------------------------------------------------------------

template <WeightFormat kFormat, int R, int C, int N>
__device__ void grouped_tiles(const GroupedMatmulParams& p, const Matrix& shape, const ExpertTable<N>& table, int32_t* numbers,
                              void* shared) {
  auto& tile = *static_cast<Tile<R, C>*>(shared);
  number_tiles(p, R, numbers);
  __syncthreads();
  const int64_t across = (shape.n + tile.columns - 1) / tile.columns, down = numbers[p.num_experts];
  for (int64_t i = blockIdx.x; i < down * across; i += gridDim.x) {
    const int32_t number = static_cast<int32_t>(i % down);
    const auto [expert, pair0, left] = expert_tile(p, numbers, R, number);
    const int64_t first = i / down * tile.columns, end = first + tile.columns < shape.n ? first + tile.columns : shape.n;
    Matrix w = shape;
    w.data = table.data[expert];
    w.scales = table.scales[expert];
    const Q8Input input = {p.codes, p.scales, p.pair_row, pair0, w.k, 0};
    run_tile<kFormat, R, C>(tile, w, first, end, static_cast<int>(left < R ? left : R), input,
                            [&](int r, int64_t column, float value) { p.y[(pair0 + r) * w.n + column] = to_bf16(value); });
  }
}

template <WeightFormat kFormat, int N>
__global__ void __launch_bounds__(kThreads, 2)
    grouped_matmul_kernel(const __grid_constant__ GroupedMatmulParams p, const __grid_constant__ Matrix shape,
                          const __grid_constant__ ExpertTable<N> table) {
  extern __shared__ float4 shared[];
  __shared__ int32_t numbers[N + 1];
  // Pairs of an expert share its decoded weights; below two per expert most would find no company.
  const int64_t pairs = live(p.pairs);
  if (pairs <= 2 * p.num_experts) {
    grouped_tiles<kFormat, 2, 2>(p, shape, table, numbers, shared);
  } else {
    grouped_tiles<kFormat, 8, 2>(p, shape, table, numbers, shared);
  }
}

constexpr int kColumns = kWarps;  // of the smallest tile
constexpr int64_t kResident = 2;  // blocks per multiprocessor

template <WeightFormat kFormat, int N>
void launch_grouped(const GpuContext& c, const GroupedMatmulParams& p) {
  const ExpertTable<N> table = expert_table<N>(p);
  const Matrix shape = p.weights[0];
  const int64_t tiles = (shape.n + kColumns - 1) / kColumns * int64_t{p.pairs.capacity};
  grouped_matmul_kernel<kFormat, N>
      <<<bounded_blocks(tiles, c.multiprocessors * kResident), kThreads, sizeof(LargestTile), c.stream>>>(p, shape, table);
}

template <WeightFormat kFormat>
void launch_grouped_of(const GpuContext& c, const GroupedMatmulParams& p) {
  if (p.num_experts <= 512) return launch_grouped<kFormat, 512>(c, p);
  launch_grouped<kFormat, kMaxExperts>(c, p);
}

template <WeightFormat kFormat>
void launch_matmul(const GpuContext& c, const MatmulParams& p) {
  const int64_t tiles = (p.w.n / p.groups + kColumns - 1) / kColumns * p.groups * int64_t{p.rows.capacity};
  matmul_kernel<kFormat><<<bounded_blocks(tiles, c.multiprocessors * kResident), kThreads, sizeof(LargestTile), c.stream>>>(p);
}

template <class Kernel>
cudaError_t allow_tile(Kernel kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(LargestTile));
}

template <WeightFormat kFormat>
cudaError_t prepare_format() {
  cudaError_t error = allow_tile(matmul_kernel<kFormat>);
  if constexpr (kFormat != WeightFormat::kBf16) {
    if (error == cudaSuccess) error = allow_tile(grouped_matmul_kernel<kFormat, 512>);
    if (error == cudaSuccess) error = allow_tile(grouped_matmul_kernel<kFormat, kMaxExperts>);
  }
  return error;
}

}  // namespace

cudaError_t prepare_matmul() {
  cudaError_t error = prepare_format<WeightFormat::kBf16>();
  if (error == cudaSuccess) error = prepare_format<WeightFormat::kF8Tile>();
  if (error == cudaSuccess) error = prepare_format<WeightFormat::kFp4>();
  return error;
}

void run_matmul(const GpuContext& c, const MatmulParams& p) {
  switch (p.w.format) {
    case WeightFormat::kBf16: return launch_matmul<WeightFormat::kBf16>(c, p);
    case WeightFormat::kF8Tile: return launch_matmul<WeightFormat::kF8Tile>(c, p);
    case WeightFormat::kFp4: return launch_matmul<WeightFormat::kFp4>(c, p);
  }
}

// Experts are quantised (model.md section 3); all have one format.
void run_grouped_matmul(const GpuContext& c, const GroupedMatmulParams& p) {
  if (p.num_experts <= 0) return;
  if (p.weights[0].format == WeightFormat::kFp4) return launch_grouped_of<WeightFormat::kFp4>(c, p);
  launch_grouped_of<WeightFormat::kF8Tile>(c, p);
}

}  // namespace deepinfer::cuda
