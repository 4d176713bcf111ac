// cuda/mma_rows.cuh - products of few rows and of many on tensor cores, in one order of additions. Internal to `cuda`.
//
// A section is 512 columns. y = (s0 + s1) + s2 ... over the sections' sums; within a section blocks of 32 columns ascend, each
// summed by two MMAs from zero and then scaled (BF16: one chain of MMAs). Two walks over the same order:
// - few rows: a warp takes one section of 16 outputs at a time, so that narrow weights keep all processors and the memory busy;
//   sums of sections meet in shared memory. Inputs come straight from the cache.
// - many rows: a warp takes 16 outputs of 64 rows through all sections; the block's 8 warps share decoded inputs.
// Either way weights are read as stored, by copies that run ahead of the tensor cores, and decoded in registers.
#pragma once

#include "cuda/mma.cuh"

namespace deepinfer::cuda {

inline constexpr int kWarps = kThreads / 32;
inline constexpr int kSectionBlocks = 16;
inline constexpr int kRows = 8;          // of one MMA
inline constexpr int kManyRows = 64;     // of a tile of many rows
inline constexpr int kStageUnits = 16;   // eight inputs each: a row's 128 columns
inline constexpr int kPartialSums = 64;  // sections x tiles of 8 rows that shared memory holds

struct Partial {
  float4 lanes[32];
};
struct SharedInputs {
  uint4 x[kManyRows][kStageUnits];
  float scales[kStageBlocks][kManyRows];
};
template <WeightFormat kFormat>
struct Room {
  Stage<kFormat> stages[kWarps][kDepth<kFormat>];
  union {
    Partial partials[kPartialSums];
    SharedInputs inputs[2];
  };
};

__device__ inline float2 ones() { return {1.0f, 1.0f}; }

// ---- inputs ------------------------------------------------------------------------------------------------------------

// Rows of a tile; raw() gives eight neighbouring columns, scales() the codes of the scales of a stage's blocks.
struct Bf16Rows {
  using Raw = uint4;
  static constexpr bool kHalf = false;
  static constexpr int kMost = 2;  // tiles of 8 rows that registers hold
  const Bf16* x;
  int64_t stride;
  int rows;
  __device__ int place(int row) const { return row < rows ? row : -1; }
  __device__ Raw raw(int place, int column) const {
    return place < 0 ? uint4{} : __ldg(reinterpret_cast<const uint4*>(x + place * stride + column));
  }
  __device__ uint32_t scales(int, int, int) const { return 0x7F7F7F7Fu; }
};

struct Q8Rows {
  using Raw = uint2;
  static constexpr bool kHalf = true;
  static constexpr int kMost = 4;
  const uint8_t* codes;
  const uint8_t* scale_codes;
  const int32_t* row_of;  // or null
  int64_t row0, stride, first;
  int rows;
  __device__ int place(int row) const { return row >= rows ? -1 : row_of ? row_of[row0 + row] : static_cast<int>(row0) + row; }
  __device__ Raw raw(int place, int column) const {
    return place < 0 ? uint2{} : __ldg(reinterpret_cast<const uint2*>(codes + place * stride + first + column));
  }
  // Of `count` blocks; a row that is not there has ones, because 0 times any finite scale is 0.
  __device__ uint32_t scales(int place, int block, int count) const {
    if (place < 0) return 0x7F7F7F7Fu;
    const uint8_t* at = scale_codes + (place * stride + first) / kScaleBlock + block;
    if (count >= kStageBlocks && (reinterpret_cast<uintptr_t>(at) & 3) == 0) return __ldg(reinterpret_cast<const uint32_t*>(at));
    uint32_t out = 0;
    for (int b = 0; b < kStageBlocks && b < count; ++b) out |= uint32_t{at[b]} << (8 * b);
    return out;
  }
};

// ---- few rows ----------------------------------------------------------------------------------------------------------

// A warp's way through its (tile of outputs, section) pairs, stage by stage.
struct Walk {
  int unit, units, sections, blocks, block;
  __device__ Walk(int units, int blocks)
      : unit(static_cast<int>(threadIdx.x) / 32),
        units(units),
        sections((blocks + kSectionBlocks - 1) / kSectionBlocks),
        blocks(blocks) {
    block = unit % sections * kSectionBlocks;
  }
  __device__ bool more() const { return unit < units; }
  __device__ int tile() const { return unit / sections; }
  __device__ int end() const {
    const int last = (unit % sections + 1) * kSectionBlocks;
    return last < blocks ? last : blocks;
  }
  __device__ bool next() {  // whether a unit has ended
    block += kStageBlocks;
    if (block < end()) return false;
    unit += kWarps;
    block = unit % sections * kSectionBlocks;
    return true;
  }
};

// f(block) for the blocks of a stage. Nearly always all four: without a branch between them they overlap.
template <class F>
__device__ void each_block(int count, F f) {
  if (count >= kStageBlocks) {
#pragma unroll
    for (int b = 0; b < kStageBlocks; ++b) f(b);
  } else {
#pragma unroll
    for (int b = 0; b < kStageBlocks - 1; ++b) {
      if (b < count) f(b);
    }
  }
}

// Outputs [first, end), at most `tiles` tiles of 16, of T x 8 rows.
template <WeightFormat kFormat, int T, class Input, class Store>
__device__ void few_rows(Room<kFormat>& room, const Matrix& w, int64_t first, int64_t end, int tiles, const Input& input,
                         Store store) {
  constexpr int kAhead = kDepth<kFormat> - 1;
  constexpr bool kHalf = Input::kHalf;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Stage<kFormat>* stages = room.stages[warp];
  int place[T], scale_place[T][2];
#pragma unroll
  for (int j = 0; j < T; ++j) {
    place[j] = input.place(j * kRows + g);
    scale_place[j][0] = input.place(j * kRows + 2 * t), scale_place[j][1] = input.place(j * kRows + 2 * t + 1);
  }
  Walk walk(tiles * ((w.k / kScaleBlock + kSectionBlocks - 1) / kSectionBlocks), w.k / kScaleBlock), ahead = walk;
  int slot = 0, ahead_slot = 0;
  const auto load = [&] {
    if (ahead.more()) {
      stages[ahead_slot].load(w, first + ahead.tile() * kTileOutputs, end, ahead.block);
      ahead.next();
    }
    commit_copies();
    ahead_slot = ahead_slot == kAhead ? 0 : ahead_slot + 1;
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load();
  // Inputs of a stage. A warp of one tile has registers to ask for the next stage's while it computes.
  struct Inputs {
    typename Input::Raw raw[kStageBlocks][T];
    uint32_t scales[T][2];
  } next;
  const auto fetch = [&](const Walk& at) {
    const int count = at.end() - at.block;
#pragma unroll
    for (int j = 0; j < T; ++j) {
#pragma unroll
      for (int b = 0; b < kStageBlocks; ++b) {
        next.raw[b][j] = input.raw(b < count ? place[j] : -1, (at.block + b) * kScaleBlock + 8 * t);
      }
      for (int i = 0; i < 2; ++i) next.scales[j][i] = input.scales(scale_place[j][i], at.block, count);
    }
  };
  float y[T][4] = {};
  if (T == 1 && walk.more()) fetch(walk);
  while (walk.more()) {
    const int count = walk.end() - walk.block, unit = walk.unit;
    if (T > 1) fetch(walk);
    const Inputs now = next;
    wait_copies<kAhead - 1>();
    __syncwarp();  // the stage is there, and everybody is done with the one before
    load();
    const bool ended = walk.next();
    if (T == 1 && walk.more()) fetch(walk);
    const Stage<kFormat>& stage = stages[slot];
    const uint32_t low_scales = stage.scales[g], high_scales = stage.scales[g + 8];
    each_block(count, [&](int b) {
      Pair low[4], high[4];
      decode<kFormat, kHalf>(stage.codes(g, b, t), low);
      decode<kFormat, kHalf>(stage.codes(g + 8, b, t), high);
      const float low_scale = scale_of(low_scales, b), high_scale = scale_of(high_scales, b);
#pragma unroll
      for (int j = 0; j < T; ++j) {
        Pair x[4];
        arrange<kFormat>(now.raw[b][j], x);
        const float2 x_scale = kHalf ? float2{scale_of(now.scales[j][0], b), scale_of(now.scales[j][1], b)} : ones();
        add_block<kFormat, kHalf>(y[j], low, high, x, low_scale, high_scale, x_scale);
      }
    });
    slot = slot == kAhead ? 0 : slot + 1;
    if (!ended) continue;
#pragma unroll
    for (int j = 0; j < T; ++j) {
      constexpr float f = kCodeFactor<kFormat, kHalf>;
      room.partials[unit * T + j].lanes[lane] = {y[j][0] * f, y[j][1] * f, y[j][2] * f, y[j][3] * f};
      y[j][0] = y[j][1] = y[j][2] = y[j][3] = 0.0f;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tiles * kTileOutputs * T * kRows; i += kThreads) {
    const int output = i % kTileOutputs, tile = i / kTileOutputs % tiles, row = i / kTileOutputs / tiles;
    const int64_t column = first + tile * kTileOutputs + output;
    if (column >= end || row >= input.rows) continue;
    const int at = (output % 8 * 4 + row % kRows / 2) * 4 + output / 8 * 2 + row % 2;  // as an MMA leaves it
    float sum = 0.0f;
    for (int s = 0; s < walk.sections; ++s) {
      sum += reinterpret_cast<const float*>(room.partials[(tile * walk.sections + s) * T + row / kRows].lanes)[at];
    }
    store(row, column, sum);
  }
  __syncthreads();  // the next tiles write there, too
}

// ---- many rows ---------------------------------------------------------------------------------------------------------

// A stage of 64 rows: fetched by all threads, eight columns each; put where all warps read it.
template <WeightFormat kFormat, class Input>
struct Fetch {
  static constexpr int kOwn = kManyRows * kStageUnits / kThreads;
  typename Input::Raw raw[kOwn];
  uint32_t scales;
  int place[kOwn], scale_place;

  __device__ explicit Fetch(const Input& input) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) place[i] = input.place(row(i));
    scale_place = input.place(threadIdx.x / kStageBlocks);
  }
  static __device__ int unit() { return threadIdx.x % kStageUnits; }
  static __device__ int row(int i) { return threadIdx.x / kStageUnits + i * (kThreads / kStageUnits); }
  __device__ void load(const Input& input, int block, int blocks) {
    const bool there = block + unit() / 4 < blocks;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) raw[i] = input.raw(there ? place[i] : -1, block * kScaleBlock + unit() * 8);
    if (Input::kHalf) scales = input.scales(scale_place, block, blocks - block);
  }
  __device__ void put(SharedInputs& to) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      Pair x[4];
      arrange<kFormat>(raw[i], x);
      to.x[row(i)][unit() ^ (row(i) & 1) * 4] = {x[0], x[1], x[2], x[3]};
    }
    const int b = threadIdx.x % kStageBlocks;
    if (Input::kHalf) to.scales[b][threadIdx.x / kStageBlocks] = scale_of(scales, b);
  }
};
static_assert(kThreads == kManyRows * kStageBlocks);

// One stage of 16 outputs x up to 64 rows.
template <WeightFormat kFormat, bool kHalf>
__device__ void many_stage(const Stage<kFormat>& stage, const SharedInputs& inputs, int count, int rows,
                           float (&y)[kManyRows / kRows][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t low_scales = stage.scales[g], high_scales = stage.scales[g + 8];
  each_block(count, [&](int b) {
    Pair low[4], high[4];
    decode<kFormat, kHalf>(stage.codes(g, b, t), low);
    decode<kFormat, kHalf>(stage.codes(g + 8, b, t), high);
    const float low_scale = scale_of(low_scales, b), high_scale = scale_of(high_scales, b);
    // Rows that are not there have zeros; four tiles at a time, so that MMAs need not wait for each other.
#pragma unroll
    for (int j0 = 0; j0 < kManyRows / kRows; j0 += 4) {
      if (j0 * kRows >= rows) break;
#pragma unroll
      for (int j = j0; j < j0 + 4; ++j) {
        const uint4 v = inputs.x[j * kRows + g][(b * 4 + t) ^ (g & 1) * 4];
        const Pair x[4] = {v.x, v.y, v.z, v.w};
        const float2 x_scale = kHalf ? *reinterpret_cast<const float2*>(&inputs.scales[b][j * kRows + 2 * t]) : ones();
        add_block<kFormat, kHalf>(y[j], low, high, x, low_scale, high_scale, x_scale);
      }
    }
  });
}

// Outputs [first, end), at most kWarps tiles of 16, of up to 64 rows.
template <WeightFormat kFormat, class Input, class Store>
__device__ void many_rows(Room<kFormat>& room, const Matrix& w, int64_t first, int64_t end, const Input& input, Store store) {
  constexpr int kAhead = kDepth<kFormat> - 1, kTiles = kManyRows / kRows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, blocks = w.k / kScaleBlock;
  const int64_t own = first + warp * kTileOutputs;
  Stage<kFormat>* stages = room.stages[warp];
  const auto load = [&](int stage) {
    if (own < end && stage * kStageBlocks < blocks) {
      stages[stage % kDepth<kFormat>].load(w, own, end, stage * kStageBlocks);
    }
    commit_copies();
  };
  Fetch<kFormat, Input> fetch(input);
  for (int i = 0; i < kAhead; ++i) load(i);
  fetch.load(input, 0, blocks);
  fetch.put(room.inputs[0]);
  float y[kTiles][4] = {}, sum[kTiles][4] = {};
  for (int stage = 0; stage * kStageBlocks < blocks; ++stage) {
    const int block = stage * kStageBlocks;
    wait_copies<kAhead - 1>();
    __syncthreads();  // inputs and weights of this stage are there; nobody reads those of the one before
    load(stage + kAhead);
    const bool more = block + kStageBlocks < blocks;
    if (more) fetch.load(input, block + kStageBlocks, blocks);
    if (own < end) {
      many_stage<kFormat, Input::kHalf>(stages[stage % kDepth<kFormat>], room.inputs[stage % 2], blocks - block, input.rows, y);
    }
    if (more) fetch.put(room.inputs[(stage + 1) % 2]);
    if (more && (block + kStageBlocks) % kSectionBlocks != 0) continue;
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      sum[i / 4][i % 4] += y[i / 4][i % 4] * kCodeFactor<kFormat, Input::kHalf>;
      y[i / 4][i % 4] = 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) {
    const int row = i / 4 * kRows + lane % 4 * 2 + i % 2;
    const int64_t column = own + lane / 4 + i % 4 / 2 * 8;
    if (row < input.rows && column < end) store(row, column, sum[i / 4][i % 4]);
  }
  __syncthreads();  // the next tile's inputs take the place of these
}

}  // namespace deepinfer::cuda
