// cpu/simd_avx512.h - the 16 lanes of DOT as one AVX-512 register. Only for kernels_avx512.cc.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/kernels.h"

namespace deepinfer::cpu {
namespace {

constexpr const RowKernels* kRows = &kAvx512Rows;

struct V16 {
  __m512 v;
};

inline bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("f16c");
}

constexpr int kTileRows = 4, kTileColumns = 4, kValueWide = 2, kMixedQueries = 8;
constexpr int kChains = 10;
// As in simd_avx2.h; 24 sums, two weights and an input of 32 registers are fewer loads than multiply-adds. By decoded chunks 64
// rows of e4m3 are 1.03 times as fast as by passes, 128 of BF16 0.94 times.
constexpr int kFewRows = 12, kFourPanelRows = 4, kTwoPanelRows = 12, kFreeSums = 22, kRowTile = 12, kManyPanels = 2;
template <WeightFormat F>
constexpr int kPassedRows = F == WeightFormat::kBf16 ? 128 : 48;

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
inline V16 zeros() { return {_mm512_setzero_ps()}; }
inline V16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, V16 v) { _mm512_storeu_ps(p, v.v); }
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }

// Lanes below `count` from a, the others from b.
inline V16 first_lanes(int count, V16 a, V16 b) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>((1u << count) - 1), b.v, a.v)};
}

// As in simd_avx2.h.
inline void load_bf16_pairs(const uint8_t* p, V16* out) {
  const __m512i words = _mm512_loadu_si512(p);
  out[0] = {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
  out[1] = {_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))))};
}

#ifdef __GFNI__
// Two pairs of columns share 32 bits of an output: of the codes a (a column of the first pair) and b (the second) half a word is
// a7 b6 b5 b4 b7 a6 a5 a4 | a3 a2 a1 a0 b3 b2 b1 b0, which is a as BF16 times 2^-120 but for a mask, and b with nibbles swapped.
inline void load_e4m3_pairs(const uint8_t* block, int k, V16* out) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0x87F00000)), swap = _mm512_set1_epi64(0x1020408001020408);
  __m512i words = _mm512_loadu_si512(block + k / 2 * 64);
  if (k % 2) words = _mm512_gf2p8affine_epi64_epi8(words, swap, 0);
  out[0] = {_mm512_castsi512_ps(_mm512_and_si512(_mm512_slli_epi32(words, 16), mask))};
  out[1] = {_mm512_castsi512_ps(_mm512_and_si512(words, mask))};
}

// Packed pairs as load_e4m3_pairs() takes them.
inline void order_e4m3(uint8_t* panel, int64_t bytes) {
  const __m128i sign = _mm_set1_epi8(-128), high = _mm_set1_epi8(0x70), low = _mm_set1_epi8(15);
  for (const uint8_t* end = panel + bytes; panel < end; panel += 64) {
    __m128i out[4];
    for (int i = 0; i < 2; ++i) {
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel) + i);
      const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel) + i + 2);
      // Nibbles a7 b6 b5 b4 and b7 a6 a5 a4, still in upper places.
      const __m128i first = _mm_or_si128(_mm_and_si128(a, sign), _mm_and_si128(b, high));
      const __m128i second = _mm_or_si128(_mm_and_si128(b, sign), _mm_and_si128(a, high));
      const __m128i upper = _mm_or_si128(first, _mm_and_si128(_mm_srli_epi16(second, 4), low));
      const __m128i lower = _mm_or_si128(_mm_slli_epi16(_mm_and_si128(a, low), 4), _mm_and_si128(b, low));
      out[2 * i] = _mm_unpacklo_epi8(lower, upper);
      out[2 * i + 1] = _mm_unpackhi_epi8(lower, upper);
    }
    __builtin_memcpy(panel, out, sizeof out);
  }
}
#else
// As in simd_avx2.h.
inline void load_e4m3_pairs(const uint8_t* block, int k, V16* out) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * k));
  const __m512i wide = _mm512_cvtepi8_epi16(codes);
  const __m512i words = _mm512_and_si512(_mm512_slli_epi16(wide, 4), _mm512_set1_epi16(static_cast<int16_t>(0x87F0)));
  out[0] = {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
  out[1] = {_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))))};
}
inline void order_e4m3(uint8_t*, int64_t) {}
#endif

// As in simd_avx2.h.
inline V16 load_e4m3x16(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBF80))))};
}

// As in simd_avx2.h: low and high nibbles of 16 bytes are numbers of a table, then put in turns.
inline void load_e2m1x32(const uint8_t* p, V16& first, V16& second) {
  const __m512 table =
      _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512 low = _mm512_permutexvar_ps(bytes, table), high = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table);
  const __m512i turns = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  first.v = _mm512_permutex2var_ps(low, turns, high);
  second.v = _mm512_permutex2var_ps(low, _mm512_add_epi32(turns, _mm512_set1_epi32(8)), high);
}

// Eight columns of 16 outputs in 64 bytes: a word per output, a nibble per column. One permutation of a register turns the
// lowest nibble of each word into its value.
inline void load_e2m1x8(const uint8_t* p, V16* out) {
  const __m512 table =
      _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  const __m512i words = _mm512_loadu_si512(p);
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) out[k] = {_mm512_permutexvar_ps(_mm512_srli_epi32(words, static_cast<unsigned>(4 * k)), table)};
}

// As in simd_avx2.h.
inline V16 load_e8m0x16(const uint8_t* p) {
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(1 << 22)))};
}

// ---- products of whole numbers (tuned_fp4.inc) -----------------------------------------------------------------------

// Outputs of a register of 32-bit numbers, panels whose weights stay in registers while rows pass, rows at once: 12 sums hide
// the latency of vpdpbusd (six rows of one row's four sums each take 32 ns, two times twelve sums 28.7).
#ifdef __AVX512VNNI__
constexpr int kFp4Rows = 3, kScoreHeads = 4;
#else
constexpr int kFp4Rows = 1, kScoreHeads = 1;
#endif
constexpr int kIntLanes = 16, kFp4Panels = 2;
struct Ints {
  __m512i v;
};
using Floats = V16;

inline Ints ints(int32_t value) { return {_mm512_set1_epi32(value)}; }
inline Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints shift_left_8(Ints a) { return {_mm512_slli_epi32(a.v, 8)}; }

// As in simd_avx2.h.
inline void e2m1_bytes(Ints words, Ints* out) {
  const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i mask = _mm512_set1_epi8(15);
  out[0] = {_mm512_shuffle_epi8(table, _mm512_and_si512(words.v, mask))};
  out[1] = {_mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(words.v, 4), mask))};
}
inline void load_e2m1_bytes(const uint8_t* p, Ints* out) { e2m1_bytes({_mm512_loadu_si512(p)}, out); }

// As in simd_avx2.h.
template <class Key>
inline void load_words(const Key* keys, int at, Ints* out) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(keys[i].codes + 4 * at);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]), a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]), a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // a[4 r + j]: of rows 4 r .. 4 r + 3 the words j, 4 + j, 8 + j, 12 + j in quarters.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88), high = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xDD);
    const __m512i low2 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88), high2 = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xDD);
    out[j] = {_mm512_shuffle_i32x4(low, low2, 0x88)}, out[8 + j] = {_mm512_shuffle_i32x4(low, low2, 0xDD)};
    out[4 + j] = {_mm512_shuffle_i32x4(high, high2, 0x88)}, out[12 + j] = {_mm512_shuffle_i32x4(high, high2, 0xDD)};
  }
}

inline Ints four_digits(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return ints(four);
}

// As in simd_avx2.h.
template <int R, int N, int P>
inline void dots(const Ints* w, const Digits* x, int first, Ints* sums) {
#ifdef __AVX512VNNI__
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < R * N; ++j) {
      const Ints four = four_digits(x[j / N].digit[first + j % N] + 4 * i);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) sums[j * P + p].v = _mm512_dpbusd_epi32(sums[j * P + p].v, w[p * 8 + i].v, four.v);
    }
  }
#else
  const __m512i ones = _mm512_set1_epi16(1);
#pragma GCC unroll 4
  for (int half = 0; half < 2 * R * N; ++half) {
    const int j = half / 2, begin = half % 2 * 4;
    __m512i pairs[P];
#pragma GCC unroll 4
    for (int i = begin; i < begin + 4; ++i) {
      const Ints four = four_digits(x[j / N].digit[first + j % N] + 4 * i);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) {
        const __m512i pair = _mm512_maddubs_epi16(w[p * 8 + i].v, four.v);
        pairs[p] = i == begin ? pair : _mm512_add_epi16(pairs[p], pair);
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) sums[j * P + p] = add(sums[j * P + p], {_mm512_madd_epi16(pairs[p], ones)});
  }
#endif
}

inline Floats load_scales(const uint8_t* p) { return load_e8m0x16(p); }
// Adds a block's sums, numbers of half a unit, times its scales.
inline void add_block(Ints sums, float half_unit, Floats scales, float* y) {
  store(y, fma(mul({_mm512_cvtepi32_ps(sums.v)}, broadcast(half_unit)), scales, load(y)));
}

// ---- 64-bit lanes (tuned_rows.inc) ---------------------------------------------------------------------------------

constexpr int kWideLanes = 8;
struct Wide {
  __m512i v;
};
inline Wide wide(uint64_t value) { return {_mm512_set1_epi64(static_cast<int64_t>(value))}; }
// first, first + 1, ...
inline Wide wide_from(uint32_t first) {
  return {_mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7))};
}
inline Wide add(Wide a, Wide b) { return {_mm512_add_epi64(a.v, b.v)}; }
// The whole products of lower halves.
inline Wide multiply_low(Wide a, Wide b) { return {_mm512_mul_epu32(a.v, b.v)}; }
inline Wide upper(Wide a) { return {_mm512_srli_epi64(a.v, 32)}; }
inline Wide xor3(Wide a, Wide b, Wide c) { return {_mm512_ternarylogic_epi64(a.v, b.v, c.v, 0x96)}; }
inline Wide most32(Wide a, Wide b) { return {_mm512_max_epu32(a.v, b.v)}; }
inline void store_lower(uint32_t* p, Wide a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi64_epi32(a.v)); }
inline uint32_t lower_top(Wide a) { return _mm512_mask_reduce_max_epu32(0x5555, a.v); }

inline __m256 add_halves(V16 v) { return _mm256_add_ps(_mm512_castps512_ps256(v.v), _mm512_extractf32x8_ps(v.v, 1)); }

}  // namespace
}  // namespace deepinfer::cpu
