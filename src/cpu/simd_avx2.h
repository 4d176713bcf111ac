// cpu/simd_avx2.h - the 16 lanes of DOT as two AVX2 registers. Only for kernels_avx2.cc.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/kernels.h"

namespace deepinfer::cpu {
namespace {

constexpr const RowKernels* kRows = &kAvx2Rows;

struct V16 {
  __m256 low, high;
};

// Accumulators of a tile: rows x columns (x 2 registers) leave room for the operands among 16 registers.
constexpr int kTileRows = 2, kTileColumns = 2, kValueWide = 1, kMixedQueries = 4;
constexpr int kChains = 5;  // V16 sums that hide the latency of a multiply-add and fit the registers
// Products with weights: rows that share weights as they are decoded, with four panels, with two; rows that pass as often as
// needed over panels; sums whose order of use is the compiler's; rows and panels of a tile of many rows (12 registers of sums,
// two of weights, an input).
constexpr int kFewRows = 6, kFourPanelRows = 1, kTwoPanelRows = 3, kFreeSums = 0, kRowTile = 6, kManyPanels = 1;
template <WeightFormat F>
constexpr int kPassedRows = 16;

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
inline V16 zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, V16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)}; }
inline V16 mul(V16 a, V16 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }

// Lanes below `count` from a, the others from b.
inline V16 first_lanes(int count, V16 a, V16 b) {
  const __m256i n = _mm256_set1_epi32(count);
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(_mm256_cmpgt_epi32(n, low))),
          _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(_mm256_cmpgt_epi32(n, high)))};
}

// Words of two BF16 columns, the even one low.
inline void load_bf16_pairs(const uint8_t* p, V16* out) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
  out[0] = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
  out[1] = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
}

// Pair k of a block's e4m3 columns, times 2^-120 (ops/portable/quant.h): bytes, the even one low, as BF16, then as above.
inline void load_e4m3_pairs(const uint8_t* block, int k, V16* out) {
  const uint8_t* p = block + 32 * k;
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0x87F0)), upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
  const __m256i low =
      _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 4), mask);
  const __m256i high = _mm256_and_si256(
      _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16))), 4), mask);
  out[0] = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
  out[1] = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
}

// Pairs of packed columns as load_e4m3_pairs() takes them.
inline void order_e4m3(uint8_t*, int64_t) {}

// The bits of e4m3 moved up by 7 are an FP16 of 2^-8 times the value, subnormals included. The sign, which sign extension
// leaves in bits 15..7, survives in bit 15 only.
inline V16 load_e4m3x16(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}

// 16 bytes, low nibble first: each byte spread over a word gives its two nibbles in place. A byte table holds the upper byte
// of each value as FP16; the lower one is zero.
inline void load_e2m1x32(const uint8_t* p, V16& first, V16& second) {
  const __m128i table =
      _mm_setr_epi8(0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46, static_cast<char>(0x80), static_cast<char>(0xB8),
                    static_cast<char>(0xBC), static_cast<char>(0xBE), static_cast<char>(0xC0), static_cast<char>(0xC2),
                    static_cast<char>(0xC4), static_cast<char>(0xC6));
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i nibbles = _mm256_and_si256(_mm256_or_si256(bytes, _mm256_slli_epi16(bytes, 4)), _mm256_set1_epi16(0x0F0F));
  const __m256i upper = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i low = _mm256_unpacklo_epi8(zero, upper), high = _mm256_unpackhi_epi8(zero, upper);  // 0-7 | 16-23, 8-15 | 24-31
  first = {_mm256_cvtph_ps(_mm256_castsi256_si128(low)), _mm256_cvtph_ps(_mm256_castsi256_si128(high))};
  second = {_mm256_cvtph_ps(_mm256_extracti128_si256(low, 1)), _mm256_cvtph_ps(_mm256_extracti128_si256(high, 1))};
}

// Eight columns of 16 outputs in 64 bytes: a word per output, a nibble per column. One permutation of a register turns three
// bits of each word into a magnitude. Only blocks that are not exact come here.
inline __m256 e2m1_of(__m256i words, int column) {
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(words, 28 - 4 * column), _mm256_set1_epi32(INT32_MIN));
  return _mm256_or_ps(_mm256_permutevar8x32_ps(table, _mm256_srli_epi32(words, 4 * column)), _mm256_castsi256_ps(sign));
}
inline void load_e2m1x8(const uint8_t* p, V16* out) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) out[k] = {e2m1_of(low, k), e2m1_of(high, k)};
}

// 16 e8m0 codes; 0 is 2^-127, a subnormal.
inline __m256 widen_e8m0(__m128i codes) {
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(codes), 23);
  return _mm256_castsi256_ps(_mm256_max_epi32(bits, _mm256_set1_epi32(1 << 22)));
}
inline V16 load_e8m0x16(const uint8_t* p) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {widen_e8m0(codes), widen_e8m0(_mm_srli_si128(codes, 8))};
}

// ---- products of whole numbers (tuned_fp4.inc) -----------------------------------------------------------------------

// Outputs of a register of 32-bit numbers, panels whose weights stay in registers while rows pass, rows at once.
constexpr int kIntLanes = 8, kFp4Panels = 1, kFp4Rows = 1, kScoreHeads = 1;
using Ints = __m256i;
using Floats = __m256;

inline Ints ints(int32_t value) { return _mm256_set1_epi32(value); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints shift_left_8(Ints a) { return _mm256_slli_epi32(a, 8); }

// Words of eight columns as bytes 2 * e2m1 + 12: columns 0, 2, 4, 6, then 1, 3, 5, 7.
inline void e2m1_bytes(Ints words, Ints* out) {
  const __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i mask = _mm256_set1_epi8(15);
  out[0] = _mm256_shuffle_epi8(table, _mm256_and_si256(words, mask));
  out[1] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(words, 4), mask));
}
inline void load_e2m1_bytes(const uint8_t* p, Ints* out) {
  e2m1_bytes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), out);
}

// As many words of each of kIntLanes keys, from word `at` on, transposed: a lane is a key.
template <class Key>
inline void load_words(const Key* keys, int at, Ints* out) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys[i].codes + 4 * at));
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]), a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]), a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    out[j] = _mm256_permute2x128_si256(a[j], a[4 + j], 0x20);
    out[4 + j] = _mm256_permute2x128_si256(a[j], a[4 + j], 0x31);
  }
}

inline Ints four_digits(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// sums[r, n, p] += digit first + n of row r's 32 columns times panel p. A pair is at most 2 * 24 * 128: four of them fit 16
// bits.
template <int R, int N, int P>
inline void dots(const Ints* w, const Digits* x, int first, Ints* sums) {
  static_assert(R == 1 && P == 1);
  const Ints ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int half = 0; half < 2 * N; ++half) {
    const int8_t* digits = x->digit[first + half / 2] + half % 2 * 16;
    const Ints* weights = w + half % 2 * 4;
    Ints pairs = _mm256_maddubs_epi16(weights[0], four_digits(digits));
#pragma GCC unroll 3
    for (int i = 1; i < 4; ++i) pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(weights[i], four_digits(digits + 4 * i)));
    sums[half / 2] = _mm256_add_epi32(sums[half / 2], _mm256_madd_epi16(pairs, ones));
  }
}

inline Floats load_scales(const uint8_t* p) { return widen_e8m0(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
// Adds a block's sums, numbers of half a unit, times its scales.
inline void add_block(Ints sums, float half_unit, Floats scales, float* y) {
  const __m256 t = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(half_unit));
  _mm256_storeu_ps(y, _mm256_fmadd_ps(t, scales, _mm256_loadu_ps(y)));
}

// ---- 64-bit lanes (tuned_rows.inc) ---------------------------------------------------------------------------------

constexpr int kWideLanes = 4;
struct Wide {
  __m256i v;
};
inline Wide wide(uint64_t value) { return {_mm256_set1_epi64x(static_cast<int64_t>(value))}; }
// first, first + 1, ...
inline Wide wide_from(uint32_t first) { return {_mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 1, 2, 3))}; }
inline Wide add(Wide a, Wide b) { return {_mm256_add_epi64(a.v, b.v)}; }
// The whole products of lower halves.
inline Wide multiply_low(Wide a, Wide b) { return {_mm256_mul_epu32(a.v, b.v)}; }
inline Wide upper(Wide a) { return {_mm256_srli_epi64(a.v, 32)}; }
inline Wide xor3(Wide a, Wide b, Wide c) { return {_mm256_xor_si256(_mm256_xor_si256(a.v, b.v), c.v)}; }
inline Wide most32(Wide a, Wide b) { return {_mm256_max_epu32(a.v, b.v)}; }
inline void store_lower(uint32_t* p, Wide a) {
  const __m256i packed = _mm256_permutevar8x32_epi32(a.v, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
inline uint32_t lower_top(Wide a) {
  const __m128i four = _mm_max_epu32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  const auto first = static_cast<uint32_t>(_mm_cvtsi128_si32(four)), second = static_cast<uint32_t>(_mm_extract_epi32(four, 2));
  return first > second ? first : second;
}

inline __m256 add_halves(V16 v) { return _mm256_add_ps(v.low, v.high); }

}  // namespace
}  // namespace deepinfer::cpu
