// Matrix products in PRODUCT order on FP32 units: bit for bit the CPU's.
//
// The sums of blocks of 32 columns do not depend on each other, so each lane of a warp takes one block of an output (32
// neighbouring weights: one or two 16-byte loads) for several rows at once, and 32 lanes cover 1,024 columns. What must be
// in order, the chain over blocks, follows from shared memory: lane (column, row) walks its 32 block sums. Weights are decoded
// once per tile of rows. How many rows and columns a tile has follows from the live rows and changes no bit.
#include "cuda/launch.cuh"

namespace deepinfer::cuda {

namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kChunkBlocks = 32;                        // blocks of columns per pass, one per lane
constexpr int kChunk = kChunkBlocks * kScaleBlock;      // columns per pass
constexpr int kBlockStride = kScaleBlock + 4;           // floats; lanes read 16 bytes each without bank conflicts
constexpr int kSumStride = kChunkBlocks + 1;

// R rows x C columns per warp.
template <int R, int C>
struct Tile {
  float x[R][kChunkBlocks * kBlockStride];
  float sums[kWarps][C * R][kSumStride];
  float scales[kWarps][C][kSumStride];
  static constexpr int columns = kWarps * C;
};

using LargeTile = Tile<8, 4>;

// 32 weights without the scale of their block; the bits of weight_code() (quant.h).
template <WeightFormat kFormat>
__device__ void decode_block(const Matrix& w, int64_t row, int64_t column, float* out) {
  const int64_t at = row * w.k + column;
  if constexpr (kFormat == WeightFormat::kFp4) {
    const uint4 packed = *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(w.data) + at / 2);
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const uint32_t code = words[i / 8] >> (i % 8 * 4);
      // Exponent and mantissa moved to where FP32 has them are 2^-126 times the value, the subnormal 0.5 included.
      out[i] = bits_float((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
    }
  } else if constexpr (kFormat == WeightFormat::kF8Tile) {
    const uint4* packed = reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(w.data) + at);
    const uint4 low = packed[0], high = packed[1];
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const uint32_t code = words[i / 4] >> (i % 4 * 8);
      out[i] = bits_float((code & 0x80u) << 24 | (code & 0x7Fu) << 20);
    }
  } else {
    const Bf16* values = static_cast<const Bf16*>(w.data) + at;
    if (w.k % 8 != 0) {  // rows are not aligned: the patch embedding
#pragma unroll
      for (int i = 0; i < 32; ++i) out[i] = to_float(values[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 v = reinterpret_cast<const uint4*>(values)[i];
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        out[8 * i + 2 * j] = bits_float(words[j] << 16);
        out[8 * i + 2 * j + 1] = bits_float(words[j] & 0xFFFF0000u);
      }
    }
  }
}

// Sums of one block of columns of weight row `column` with R rows of x.
template <int R, WeightFormat kFormat>
__device__ void block_sums(const Matrix& w, int64_t column, int64_t block, const float (*x)[kChunkBlocks * kBlockStride], int lane,
                           float* sums) {
  const int64_t begin = block * kScaleBlock;
#pragma unroll
  for (int r = 0; r < R; ++r) sums[r] = 0.0f;
  if (begin + kScaleBlock > w.k) {  // the last block of a BF16 weight
    for (int i = 0; begin + i < w.k; ++i) {
      const float code = weight_code(w, column, begin + i);
      for (int r = 0; r < R; ++r) sums[r] = fma32(x[r][lane * kBlockStride + i], code, sums[r]);
    }
    return;
  }
  float codes[kScaleBlock];
  decode_block<kFormat>(w, column, begin, codes);
#pragma unroll
  for (int i = 0; i < kScaleBlock; i += 4) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float4 v = *reinterpret_cast<const float4*>(&x[r][lane * kBlockStride + i]);
      sums[r] = fma32(v.x, codes[i], sums[r]);
      sums[r] = fma32(v.y, codes[i + 1], sums[r]);
      sums[r] = fma32(v.z, codes[i + 2], sums[r]);
      sums[r] = fma32(v.w, codes[i + 3], sums[r]);
    }
  }
}

template <int R>
__device__ void any_block_sums(const Matrix& w, int64_t column, int64_t block, const float (*x)[kChunkBlocks * kBlockStride],
                               int lane, float* sums) {
  switch (w.format) {
    case WeightFormat::kBf16: return block_sums<R, WeightFormat::kBf16>(w, column, block, x, lane, sums);
    case WeightFormat::kF8Tile: return block_sums<R, WeightFormat::kF8Tile>(w, column, block, x, lane, sums);
    case WeightFormat::kFp4: return block_sums<R, WeightFormat::kFp4>(w, column, block, x, lane, sums);
  }
}

// R x (kWarps * C) outputs by one block: columns [first, end) of w, rows by `input(row, k)`, results to `store(row, column, sum)`.
template <int R, int C, class Input, class Store>
__device__ void run_tile(Tile<R, C>& tile, const Matrix& w, int64_t first, int64_t end, int rows, Input input, Store store) {
  static_assert(R * C <= 32);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t blocks = (w.k + kScaleBlock - 1) / kScaleBlock;
  const float factor = input_factor(w.format);
  float y = 0.0f;
  for (int64_t chunk = 0; chunk < blocks; chunk += kChunkBlocks) {
    __syncthreads();
    for (int i = threadIdx.x; i < rows * kChunk; i += kThreads) {
      const int r = i / kChunk, at = i % kChunk;
      const int64_t k = chunk * kScaleBlock + at;
      if (k < w.k) tile.x[r][at / kScaleBlock * kBlockStride + at % kScaleBlock] = input(r, k) * factor;
    }
    __syncthreads();
    const int64_t block = chunk + lane;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const int64_t column = first + warp * C + c;
      if (column >= end || block >= blocks) continue;
      float sums[R];
      any_block_sums<R>(w, column, block, tile.x, lane, sums);
#pragma unroll
      for (int r = 0; r < R; ++r) tile.sums[warp][c * R + r][lane] = sums[r];
      tile.scales[warp][c][lane] = block_scale(w, column, block);
    }
    __syncwarp();
    if (lane < R * C) {
      const int last = static_cast<int>(blocks - chunk < kChunkBlocks ? blocks - chunk : kChunkBlocks);
      for (int b = 0; b < last; ++b) y = fma32(tile.sums[warp][lane][b], tile.scales[warp][lane / R][b], y);
    }
    __syncwarp();
  }
  const int64_t column = first + warp * C + lane / R;
  if (lane < R * C && column < end && lane % R < rows) store(lane % R, column, y);
}

// ---- one weight -----------------------------------------------------------------------------------------------

template <int R, int C>
__device__ void matmul_tiles(const MatmulParams& p, int64_t n, void* shared) {
  auto& tile = *static_cast<Tile<R, C>*>(shared);
  const int64_t per_group = p.w.n / p.groups, across = (per_group + tile.columns - 1) / tile.columns;
  const int64_t down = (n + R - 1) / R;
  // Row tiles of the same columns run side by side, so weights come from memory once.
  for (int64_t i = blockIdx.x; i < down * across * p.groups; i += gridDim.x) {
    const int64_t row0 = i % down * R, group = i / down / across, first = i / down % across * tile.columns;
    const int64_t begin = group * per_group + first;
    const int64_t end = (first + tile.columns < per_group ? begin + tile.columns : (group + 1) * per_group);
    const int rows = static_cast<int>(n - row0 < R ? n - row0 : R);
    const auto store = [&](int r, int64_t column, float value) { store_matmul(p, row0 + r, column, value); };
    if (p.x) {
      const Bf16* x = p.x + row0 * p.x_stride + group * p.w.k;
      run_tile<R, C>(tile, p.w, begin, end, rows, [&](int r, int64_t k) { return to_float(x[r * p.x_stride + k]); }, store);
    } else {
      const int64_t at = (row0 * p.groups + group) * p.w.k, stride = int64_t{p.groups} * p.w.k;
      run_tile<R, C>(tile, p.w, begin, end, rows, [&](int r, int64_t k) { return q8_at(p.codes, p.scales, at + r * stride + k); },
                     store);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1) matmul_kernel(MatmulParams p) {
  extern __shared__ float4 shared[];
  const int64_t n = live(p.rows);
  // Few rows: more blocks with fewer columns each.
  if (n <= 1) {
    matmul_tiles<1, 1>(p, n, shared);
  } else if (n <= 4) {
    matmul_tiles<4, 1>(p, n, shared);
  } else {
    matmul_tiles<8, 4>(p, n, shared);
  }
}

// ---- many experts ---------------------------------------------------------------------------------------------

// The table of weights travels with the launch, so a recorded launch keeps it.
template <int N>
struct ExpertTable {
  const void* data[N];
  const uint8_t* scales[N];
};

// Row tiles of all experts in one line: first[e] is expert e's first.
__device__ void number_tiles(const GroupedMatmulParams& p, int rows_of_tile, int32_t* first) {
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

template <int R, int C, int N>
__device__ void grouped_tiles(const GroupedMatmulParams& p, const Matrix& shape, const ExpertTable<N>& table, int32_t* numbers,
                              void* shared) {
  auto& tile = *static_cast<Tile<R, C>*>(shared);
  number_tiles(p, R, numbers);
  __syncthreads();
  const int64_t across = (shape.n + tile.columns - 1) / tile.columns, down = numbers[p.num_experts];
  for (int64_t i = blockIdx.x; i < down * across; i += gridDim.x) {
    const int32_t number = static_cast<int32_t>(i % down);
    int low = 0, high = p.num_experts - 1;  // the last expert whose first tile is not after this one
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (numbers[middle] <= number) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t pair0 = p.offsets[low] + int64_t{number - numbers[low]} * R, left = p.offsets[low + 1] - pair0;
    const int64_t first = i / down * tile.columns, end = first + tile.columns < shape.n ? first + tile.columns : shape.n;
    Matrix w = shape;
    w.data = table.data[low];
    w.scales = table.scales[low];
    run_tile<R, C>(
        tile, w, first, end, static_cast<int>(left < R ? left : R),
        [&](int r, int64_t k) {
          const int64_t row = p.pair_row ? p.pair_row[pair0 + r] : pair0 + r;
          return q8_at(p.codes, p.scales, row * w.k + k);
        },
        [&](int r, int64_t column, float value) { p.y[(pair0 + r) * w.n + column] = to_bf16(value); });
  }
}

template <int N>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_matmul_kernel(const __grid_constant__ GroupedMatmulParams p, const __grid_constant__ Matrix shape,
                          const __grid_constant__ ExpertTable<N> table) {
  extern __shared__ float4 shared[];
  __shared__ int32_t numbers[N + 1];
  // Pairs of an expert share its decoded weights; below two per expert most would find no company.
  if (live(p.pairs) <= 2 * p.num_experts) {
    grouped_tiles<2, 4>(p, shape, table, numbers, shared);
  } else {
    grouped_tiles<8, 4>(p, shape, table, numbers, shared);
  }
}

template <int N>
void launch_grouped(const Context& c, const GroupedMatmulParams& p) {
  ExpertTable<N> table = {};
  for (int e = 0; e < p.num_experts; ++e) {
    table.data[e] = p.weights[e].data;
    table.scales[e] = p.weights[e].scales;
  }
  const Matrix shape = p.weights[0];
  const int64_t across = (shape.n + Tile<2, 4>::columns - 1) / Tile<2, 4>::columns;
  const unsigned blocks = bounded_blocks(across * p.pairs.capacity, int64_t{c.multiprocessors} * 2);
  grouped_matmul_kernel<N><<<blocks, kThreads, sizeof(LargeTile), c.stream>>>(p, shape, table);
}

template <class Kernel>
cudaError_t allow_large_tile(Kernel kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(LargeTile));
}

}  // namespace

cudaError_t prepare_matmul() {
  cudaError_t error = allow_large_tile(matmul_kernel);
  if (error == cudaSuccess) error = allow_large_tile(grouped_matmul_kernel<64>);
  if (error == cudaSuccess) error = allow_large_tile(grouped_matmul_kernel<512>);
  if (error == cudaSuccess) error = allow_large_tile(grouped_matmul_kernel<kMaxExperts>);
  return error;
}

void run_matmul(const Context& c, const MatmulParams& p) {
  const int64_t tiles = (p.w.n + kWarps - 1) / kWarps * int64_t{p.rows.capacity};
  matmul_kernel<<<bounded_blocks(tiles, int64_t{c.multiprocessors} * 2), kThreads, sizeof(LargeTile), c.stream>>>(p);
}

void run_grouped_matmul(const Context& c, const GroupedMatmulParams& p) {
  if (p.num_experts <= 0) return;
  if (p.num_experts <= 64) return launch_grouped<64>(c, p);
  if (p.num_experts <= 512) return launch_grouped<512>(c, p);
  launch_grouped<kMaxExperts>(c, p);
}

}  // namespace deepinfer::cuda
