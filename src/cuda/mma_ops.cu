// Products on tensor cores: exact operands, FP32 sums in an order that only a weight's shape decides (mma_rows.cuh).
#include "cuda/experts.cuh"
#include "cuda/mma_rows.cuh"

namespace deepinfer::cuda {

namespace {

constexpr int64_t kResident = 2;  // blocks per multiprocessor

__device__ int64_t tiles_of(int64_t outputs) { return (outputs + kTileOutputs - 1) / kTileOutputs; }

// How many tiles of outputs a block takes at once: so many that all blocks have work and warps find no rest.
__device__ int tiles_at_once(int64_t tiles, int sections_and_rows) {
  const int64_t even = (tiles + gridDim.x - 1) / gridDim.x;
  const int most = kPartialSums / sections_and_rows < kWarps ? kPartialSums / sections_and_rows : kWarps;
  return static_cast<int>(even < 1 ? 1 : even < most ? even : most);
}

__device__ int sections_of(const Matrix& w) { return (w.k / kScaleBlock + kSectionBlocks - 1) / kSectionBlocks; }

// Calls run(row0, first, end, tiles) for all tiles of rows and outputs; those of the same outputs side by side, so weights come
// from memory once.
template <class F>
__device__ void each_tile(int64_t outputs, int64_t groups, int64_t down, int tiles, F run) {
  const int64_t across = (tiles_of(outputs) + tiles - 1) / tiles;
  for (int64_t i = blockIdx.x; i < down * across * groups; i += gridDim.x) {
    const int64_t group = i / down / across, first = i / down % across * tiles * kTileOutputs;
    const int64_t last = first + int64_t{tiles} * kTileOutputs < outputs ? first + int64_t{tiles} * kTileOutputs : outputs;
    run(i % down, group, group * outputs + first, group * outputs + last, static_cast<int>(tiles_of(last - first)));
  }
}

template <class Input>
__device__ Input rows_of(const MatmulParams& p, int64_t row0, int64_t group, int rows) {
  if constexpr (Input::kHalf) {
    return {p.codes, p.scales, nullptr, row0, int64_t{p.groups} * p.w.k, group * p.w.k, rows};
  } else {
    return {p.x + row0 * p.x_stride + group * p.w.k, p.x_stride, rows};
  }
}

// T tiles of 8 rows at once, or (T = 0) many.
template <WeightFormat kFormat, int T, class Input>
__device__ void matmul_tiles(Room<kFormat>& room, const MatmulParams& p, int64_t n) {
  constexpr int kTileRows = T == 0 ? kManyRows : T * kRows;
  const int64_t outputs = p.w.n / p.groups, down = (n + kTileRows - 1) / kTileRows;
  const int tiles = T == 0 ? kWarps : tiles_at_once(tiles_of(outputs) * down * p.groups, sections_of(p.w) * T);
  each_tile(outputs, p.groups, down, tiles, [&](int64_t tile, int64_t group, int64_t first, int64_t end, int count) {
    const int64_t row0 = tile * kTileRows, left = n - row0;
    const Input input = rows_of<Input>(p, row0, group, static_cast<int>(left < kTileRows ? left : kTileRows));
    const auto store = [&](int row, int64_t column, float value) { store_matmul(p, row0 + row, column, value); };
    if constexpr (T == 0) {
      many_rows<kFormat>(room, p.w, first, end, input, store);
    } else {
      few_rows<kFormat, T>(room, p.w, first, end, count, input, store);
    }
  });
}

template <WeightFormat kFormat, class Input>
__global__ void __launch_bounds__(kThreads, kResident) mma_matmul_kernel(const __grid_constant__ MatmulParams p) {
  extern __shared__ uint4 shared[];
  auto& room = *reinterpret_cast<Room<kFormat>*>(shared);
  const int64_t n = live(p.rows);
  if (n <= kRows) {
    matmul_tiles<kFormat, 1, Input>(room, p, n);
  } else if (n <= kManyRows && sections_of(p.w) * Input::kMost <= kPartialSums) {
    matmul_tiles<kFormat, Input::kMost, Input>(room, p, n);
  } else {
    matmul_tiles<kFormat, 0, Input>(room, p, n);
  }
}

template <WeightFormat kFormat, int T, int N>
__device__ void grouped_tiles(Room<kFormat>& room, const GroupedMatmulParams& p, const Matrix& shape, const ExpertTable<N>& table,
                              int32_t* numbers) {
  constexpr int kTileRows = T == 0 ? kManyRows : T * kRows;
  number_tiles(p, kTileRows, numbers);
  __syncthreads();
  const int64_t down = numbers[p.num_experts];
  const int tiles = T == 0 ? kWarps : tiles_at_once(tiles_of(shape.n) * down, sections_of(shape) * T);
  each_tile(shape.n, 1, down, tiles, [&](int64_t number, int64_t, int64_t first, int64_t end, int count) {
    const auto [expert, pair0, left] = expert_tile(p, numbers, kTileRows, static_cast<int32_t>(number));
    Matrix w = shape;
    w.data = table.data[expert];
    w.scales = table.scales[expert];
    const int64_t pair = pair0;
    const Q8Rows input = {p.codes, p.scales, p.pair_row, pair, w.k, 0, static_cast<int>(left < kTileRows ? left : kTileRows)};
    const auto store = [&](int row, int64_t column, float value) { p.y[(pair + row) * shape.n + column] = to_bf16(value); };
    if constexpr (T == 0) {
      many_rows<kFormat>(room, w, first, end, input, store);
    } else {
      few_rows<kFormat, T>(room, w, first, end, count, input, store);
    }
  });
}

template <WeightFormat kFormat, int N>
__global__ void __launch_bounds__(kThreads, kResident)
    mma_grouped_kernel(const __grid_constant__ GroupedMatmulParams p, const __grid_constant__ Matrix shape,
                       const __grid_constant__ ExpertTable<N> table) {
  extern __shared__ uint4 shared[];
  __shared__ int32_t numbers[N + 1];
  auto& room = *reinterpret_cast<Room<kFormat>*>(shared);
  // By the pairs that an expert has on average.
  const int64_t pairs = live(p.pairs);
  if (pairs <= kRows * p.num_experts) {
    grouped_tiles<kFormat, 1>(room, p, shape, table, numbers);
  } else {
    grouped_tiles<kFormat, 0>(room, p, shape, table, numbers);
  }
}

template <WeightFormat kFormat, class Input>
void launch_matmul(const GpuContext& c, const MatmulParams& p) {
  const int64_t tiles = (p.w.n / p.groups + kTileOutputs - 1) / kTileOutputs * p.groups * int64_t{p.rows.capacity};
  mma_matmul_kernel<kFormat, Input>
      <<<bounded_blocks(tiles, c.multiprocessors * kResident), kThreads, sizeof(Room<kFormat>), c.stream>>>(p);
}

template <WeightFormat kFormat, int N>
void launch_grouped(const GpuContext& c, const GroupedMatmulParams& p) {
  const Matrix shape = p.weights[0];
  const int64_t tiles = (shape.n + kTileOutputs - 1) / kTileOutputs * int64_t{p.pairs.capacity};
  mma_grouped_kernel<kFormat, N>
      <<<bounded_blocks(tiles, c.multiprocessors * kResident), kThreads, sizeof(Room<kFormat>), c.stream>>>(p, shape,
                                                                                                            expert_table<N>(p));
}

template <WeightFormat kFormat>
void launch_grouped_of(const GpuContext& c, const GroupedMatmulParams& p) {
  if (p.num_experts <= 512) return launch_grouped<kFormat, 512>(c, p);
  launch_grouped<kFormat, kMaxExperts>(c, p);
}

// Shapes that these kernels read in whole blocks and 16-byte units, and whose sections' sums have room; all of the release's.
bool takes(const Matrix& w) { return w.k % kScaleBlock == 0 && w.k <= kPartialSums * kSectionBlocks * kScaleBlock; }
bool takes(const MatmulParams& p) {
  if (!takes(p.w)) return false;
  if (!p.x) return p.w.format != WeightFormat::kBf16;
  return p.w.format != WeightFormat::kFp4 && p.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
}

template <WeightFormat kFormat, class Kernel>
cudaError_t allow_room(Kernel kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Room<kFormat>));
}

}  // namespace

cudaError_t prepare_mma() {
  constexpr auto kBf16 = WeightFormat::kBf16, kF8 = WeightFormat::kF8Tile, kFp4 = WeightFormat::kFp4;
  for (const cudaError_t error :
       {allow_room<kBf16>(mma_matmul_kernel<kBf16, Bf16Rows>), allow_room<kF8>(mma_matmul_kernel<kF8, Bf16Rows>),
        allow_room<kF8>(mma_matmul_kernel<kF8, Q8Rows>), allow_room<kFp4>(mma_matmul_kernel<kFp4, Q8Rows>),
        allow_room<kF8>(mma_grouped_kernel<kF8, 512>), allow_room<kF8>(mma_grouped_kernel<kF8, kMaxExperts>),
        allow_room<kFp4>(mma_grouped_kernel<kFp4, 512>), allow_room<kFp4>(mma_grouped_kernel<kFp4, kMaxExperts>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void run_mma_matmul(const GpuContext& c, const MatmulParams& p) {
  if (!takes(p)) return run_matmul(c, p);
  switch (p.w.format) {
    case WeightFormat::kBf16: return launch_matmul<WeightFormat::kBf16, Bf16Rows>(c, p);
    case WeightFormat::kF8Tile:
      return p.x ? launch_matmul<WeightFormat::kF8Tile, Bf16Rows>(c, p) : launch_matmul<WeightFormat::kF8Tile, Q8Rows>(c, p);
    case WeightFormat::kFp4: return launch_matmul<WeightFormat::kFp4, Q8Rows>(c, p);
  }
}

void run_mma_grouped_matmul(const GpuContext& c, const GroupedMatmulParams& p) {
  if (p.num_experts <= 0) return;
  if (!takes(p.weights[0])) return run_grouped_matmul(c, p);
  if (p.weights[0].format == WeightFormat::kFp4) return launch_grouped_of<WeightFormat::kFp4>(c, p);
  launch_grouped_of<WeightFormat::kF8Tile>(c, p);
}

}  // namespace deepinfer::cuda
