// cuda/mma.cuh - operands of the tensor cores: codes to fragments of m16n8k16, bit for bit exact. Internal to `cuda`.
//
// Outputs (rows of a weight) are the 16 rows of an MMA, rows of the input its 8 columns. Which column of a block of 32 goes to
// which place of an MMA is free as long as both operands agree, so thread t of four takes columns 8t..8t+7 as they lie in memory.
// Codes of 4 and 8 bits become FP16 by moving bits: e2m1 is then 2^-14, e4m3 2^-8 of its value, subnormals included, and the
// factor is left to the section's sum. Beside BF16 inputs weights become BF16 and are multiplied back, which is exact, too.
#pragma once

#include "cuda/launch.cuh"

namespace deepinfer::cuda {

// Two 16-bit values in the order of an MMA's operands.
using Pair = uint32_t;

// Sum of 16 columns of 16 outputs x 8 inputs. a[0], a[2]: output g = lane / 4, a[1], a[3]: g + 8; b: input g; d[0], d[1]: output
// g of inputs 2t and 2t + 1 (t = lane % 4), d[2], d[3]: output g + 8.
#define DI_MMA(type, out, in)                                                                                                 \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};" \
      : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])                                                                \
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(in[0]), "f"(in[1]), "f"(in[2]), "f"(in[3]))
template <bool kHalf>
__device__ inline void mma(float (&d)[4], const float (&c)[4], Pair a0, Pair a1, Pair a2, Pair a3, Pair b0, Pair b1) {
  if constexpr (kHalf) {
    DI_MMA("f16", d, c);
  } else {
    DI_MMA("bf16", d, c);
  }
}
#undef DI_MMA

__device__ inline Pair times(Pair x, uint32_t factor) {  // BF16 by BF16
  Pair y;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(factor));
  return y;
}
__device__ inline Pair half_of_e4m3(uint32_t low_bytes) {
  Pair y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(static_cast<uint16_t>(low_bytes)));
  return y;
}

template <int kShift>
__device__ inline uint32_t left(uint32_t x) {
  if constexpr (kShift >= 0) {
    return x << kShift;
  } else {
    return x >> -kShift;
  }
}

// Eight weights of one output, the thread's of a block: as stored, and as four pairs.
template <WeightFormat kFormat>
struct Codes {
  static constexpr int kBytes = kFormat == WeightFormat::kFp4 ? 4 : kFormat == WeightFormat::kF8Tile ? 8 : 16;
  uint32_t words[kBytes / 4];
};

// What a section's sum is multiplied with for the codes' sake.
template <WeightFormat kFormat, bool kHalf>
inline constexpr float kCodeFactor = !kHalf                          ? 1.0f
                                     : kFormat == WeightFormat::kFp4 ? 0x1p14f
                                                                     : 0x1p8f;

template <bool kHalf, int kNibble>
__device__ inline Pair pair_of_fp4(uint32_t w) {  // codes kNibble and kNibble + 4
  constexpr int kMagnitude = kHalf ? 9 : 6;       // FP16 and BF16 have the upper bit of their mantissa there
  const Pair x = (left<12 - 4 * kNibble>(w) & 0x80008000u) | (left<kMagnitude - 4 * kNibble>(w) & 0x00070007u << kMagnitude);
  return kHalf ? x : times(x, 0x7E807E80u);  // 2^126
}
template <bool kHalf, int kByte>
__device__ inline Pair pair_of_f8(uint32_t w) {  // codes kByte and kByte + 2
  constexpr int kMagnitude = kHalf ? 7 : 4;
  const Pair x = (left<8 - 8 * kByte>(w) & 0x80008000u) | (left<kMagnitude - 8 * kByte>(w) & 0x007F007Fu << kMagnitude);
  return kHalf ? x : times(x, 0x7B807B80u);  // 2^120
}

template <WeightFormat kFormat, bool kHalf>
__device__ inline void decode(const Codes<kFormat>& codes, Pair (&out)[4]) {
  const uint32_t* w = codes.words;
  if constexpr (kFormat == WeightFormat::kFp4) {
    out[0] = pair_of_fp4<kHalf, 0>(w[0]), out[1] = pair_of_fp4<kHalf, 1>(w[0]);
    out[2] = pair_of_fp4<kHalf, 2>(w[0]), out[3] = pair_of_fp4<kHalf, 3>(w[0]);
  } else if constexpr (kFormat == WeightFormat::kF8Tile) {
    out[0] = pair_of_f8<kHalf, 0>(w[0]), out[1] = pair_of_f8<kHalf, 1>(w[0]);
    out[2] = pair_of_f8<kHalf, 0>(w[1]), out[3] = pair_of_f8<kHalf, 1>(w[1]);
  } else {
    out[0] = w[0], out[1] = w[1], out[2] = w[2], out[3] = w[3];
  }
}

// Eight inputs of a row in the order decode() gives weights.
template <WeightFormat kFormat>
__device__ inline void arrange(uint2 x, Pair (&out)[4]) {  // e4m3; NaN stays NaN
  constexpr bool kFp4 = kFormat == WeightFormat::kFp4;
  const uint32_t low = kFp4 ? __byte_perm(x.x, x.y, 0x5140) : __byte_perm(x.x, 0, 0x3120);
  const uint32_t high = kFp4 ? __byte_perm(x.x, x.y, 0x7362) : __byte_perm(x.y, 0, 0x3120);
  out[0] = half_of_e4m3(low), out[1] = half_of_e4m3(low >> 16);
  out[2] = half_of_e4m3(high), out[3] = half_of_e4m3(high >> 16);
}
template <WeightFormat kFormat>
__device__ inline void arrange(uint4 x, Pair (&out)[4]) {  // BF16
  if constexpr (kFormat == WeightFormat::kBf16) {
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
  } else {
    static_assert(kFormat == WeightFormat::kF8Tile);
    out[0] = __byte_perm(x.x, x.y, 0x5410), out[1] = __byte_perm(x.x, x.y, 0x7632);
    out[2] = __byte_perm(x.z, x.w, 0x5410), out[3] = __byte_perm(x.z, x.w, 0x7632);
  }
}

// e8m0 code `block` of four. An infinity stands for NaN (code 255): what it touches is not finite either way.
__device__ inline float scale_of(uint32_t codes, int block) {
  const uint32_t bits = block < 3 ? codes << (23 - 8 * block) : codes >> 1;
  return bits_float(max(bits & 0x7F800000u, 0x00400000u));  // 2^-127, code 0, is an FP32 subnormal
}

// One block of 32 columns: its sum from zero, then times both scales onto `y`; blocks of BF16 go on in the tensor core.
// `low` and `high` are outputs g and g + 8.
template <WeightFormat kFormat, bool kHalf>
__device__ inline void add_block(float (&y)[4], const Pair (&low)[4], const Pair (&high)[4], const Pair (&x)[4], float low_scale,
                                 float high_scale, float2 x_scale) {
  if constexpr (kFormat == WeightFormat::kBf16) {
    mma<kHalf>(y, y, low[0], high[0], low[1], high[1], x[0], x[1]);
    mma<kHalf>(y, y, low[2], high[2], low[3], high[3], x[2], x[3]);
    return;
  }
  constexpr float kZero[4] = {};
  float sum[4];
  mma<kHalf>(sum, kZero, low[0], high[0], low[1], high[1], x[0], x[1]);
  mma<kHalf>(sum, sum, low[2], high[2], low[3], high[3], x[2], x[3]);
  y[0] = fma32(sum[0], low_scale * x_scale.x, y[0]);
  y[1] = fma32(sum[1], low_scale * x_scale.y, y[1]);
  y[2] = fma32(sum[2], high_scale * x_scale.x, y[2]);
  y[3] = fma32(sum[3], high_scale * x_scale.y, y[3]);
}

// ---- weights on their way to shared memory -------------------------------------------------------------------------

__device__ inline void copy_async_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ inline void copy_async_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

inline constexpr int kTileOutputs = 16;
inline constexpr int kStageBlocks = 4;  // of 32 columns

// One warp's 16 outputs x 128 columns of a weight. 16-byte units change places within a row so that the 32 threads' reads of a
// block meet all banks.
template <WeightFormat kFormat>
struct Stage {
  static constexpr int kUnits = Codes<kFormat>::kBytes * 4 * kStageBlocks / 16;  // of a row
  static constexpr int kBlockUnits = kUnits / kStageBlocks;
  uint4 units[kTileOutputs * kUnits];
  uint32_t scales[kTileOutputs];  // a byte per block

  static __device__ int moved(int row, int unit) {
    if constexpr (kFormat == WeightFormat::kFp4) return unit ^ (row >> 1 & 3);
    if constexpr (kFormat == WeightFormat::kF8Tile) return unit ^ (row & 3) * 2;
    return unit ^ (row & 1) * 4;
  }

  // Called by a warp; rows at or beyond `end` repeat the last one, and nobody stores what becomes of them.
  __device__ void load(const Matrix& w, int64_t row0, int64_t end, int block0) {
    const int lane = threadIdx.x % 32, blocks = w.k / kScaleBlock, left = blocks - block0;
    const int64_t row_bytes = int64_t{blocks} * kBlockUnits * 16;
    const uint8_t* from = static_cast<const uint8_t*>(w.data) + int64_t{block0} * kBlockUnits * 16;
#pragma unroll
    for (int i = 0; i < kTileOutputs * kUnits; i += 32) {
      const int row = (i + lane) / kUnits, unit = (i + lane) % kUnits;
      const int64_t source = row0 + row < end ? row0 + row : end - 1;
      if (unit / kBlockUnits < left)
        copy_async_16(&units[row * kUnits + moved(row, unit)], from + source * row_bytes + unit * 16);
    }
    if (kFormat == WeightFormat::kBf16 || lane >= kTileOutputs) return;
    int64_t source = row0 + lane < end ? row0 + lane : end - 1;
    if (kFormat == WeightFormat::kF8Tile) source /= kScaleBlock;
    const uint8_t* scale = w.scales + source * blocks + block0;
    if (left >= kStageBlocks && (reinterpret_cast<uintptr_t>(scale) & 3) == 0) {
      copy_async_4(&scales[lane], scale);
    } else {
      uint32_t codes = 0;
      for (int b = 0; b < kStageBlocks && b < left; ++b) codes |= uint32_t{scale[b]} << (8 * b);
      scales[lane] = codes;
    }
  }

  __device__ Codes<kFormat> codes(int row, int block, int t) const {
    constexpr int kThreadsOfUnit = 16 / Codes<kFormat>::kBytes;
    const int unit = block * kBlockUnits + t / kThreadsOfUnit;
    const uint4* at = &units[row * kUnits + moved(row, unit)];
    Codes<kFormat> out;
    if constexpr (kFormat == WeightFormat::kFp4) {
      out.words[0] = reinterpret_cast<const uint32_t*>(at)[t];
    } else if constexpr (kFormat == WeightFormat::kF8Tile) {
      const uint2 v = reinterpret_cast<const uint2*>(at)[t % 2];
      out.words[0] = v.x, out.words[1] = v.y;
    } else {
      out.words[0] = at->x, out.words[1] = at->y, out.words[2] = at->z, out.words[3] = at->w;
    }
    return out;
  }
};

// Stages of one warp, as many as 8 KB hold: some are computed with, the others are on their way.
template <WeightFormat kFormat>
inline constexpr int kDepth = kFormat == WeightFormat::kFp4      ? 8
                              : kFormat == WeightFormat::kF8Tile ? 4
                                                                 : 2;

}  // namespace deepinfer::cuda
