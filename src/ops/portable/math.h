// ops/portable/math.h - exp, log, sigmoid, softplus, erf, sin and cos from our own polynomials.
//
// Promise: the same bits on every compiler and device of a class: only IEEE add, multiply, divide, sqrt and explicit fma,
// no contraction, no library function. Branch-light, so loops over these vectorise.
// Coefficients are Chebyshev interpolants of the stated function on the stated interval, rounded to the working type;
// largest errors measured in math_test.cc: exp 1.1 ulp, log 0.9 ulp, erf 2.4 ulp, sin and cos correctly rounded but for
// ties of the double result.
#pragma once

#include <cstdint>

#include "formats/codecs.h"
#include "ops/portable/isa.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

DI_BODY float fma32(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

DI_BODY double fma64(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

DI_BODY float sqrt32(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

DI_BODY float rsqrt32(float x) { return 1.0f / sqrt32(x); }
DI_BODY float abs32(float x) { return bits_float(float_bits(x) & 0x7FFFFFFFu); }
DI_BODY float min32(float a, float b) { return b < a ? b : a; }
DI_BODY float max32(float a, float b) { return a < b ? b : a; }
DI_BODY bool is_finite32(float x) { return (float_bits(x) & 0x7FFFFFFFu) < 0x7F800000u; }

// e^x = 2^n * (1 + r + r^2 q(r)), |r| <= ln2 / 2. Subnormal results are right; NaN stays NaN.
DI_BODY float exp32(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  float t = x < -104.0f ? -104.0f : x;
  t = t > 89.0f ? 89.0f : t;
  const float shifted = fma32(t, 1.44269504f, kRound);
  const float n = shifted - kRound;
  float r = fma32(n, -0.693359375f, t);
  r = fma32(n, 2.12194440e-4f, r);
  float q = fma32(r, 1.3926203359e-3f, 8.3631948823e-3f);
  q = fma32(q, r, 4.1666554498e-2f);
  q = fma32(q, r, 1.6666576895e-1f);
  q = fma32(q, r, 0.5f);
  const float e = 1.0f + fma32(q, r * r, r);
  // Two factors, because 2^n alone leaves the normal range at both ends.
  const int32_t whole = static_cast<int32_t>(float_bits(shifted) - float_bits(kRound));
  const int32_t half = whole >> 1;
  const float low = bits_float(static_cast<uint32_t>(half + 127) << 23);
  const float high = bits_float(static_cast<uint32_t>(whole - half + 127) << 23);
  return e * low * high;
}

// Natural logarithm. REQUIRES: x positive, normal and finite.
DI_BODY float log32(float x) {
  const uint32_t bits = float_bits(x);
  // Mantissa into [sqrt(1/2), sqrt(2)).
  const uint32_t moved = bits + (0x3F800000u - 0x3F3504F3u);
  const float k = static_cast<float>(static_cast<int32_t>(moved >> 23) - 127);
  const float f = bits_float((moved & 0x7FFFFFu) + 0x3F3504F3u) - 1.0f;
  float p = fma32(f, 6.9730704274e-2f, -1.1481477241e-1f);
  p = fma32(p, f, 1.1685719632e-1f);
  p = fma32(p, f, -1.2425486561e-1f);
  p = fma32(p, f, 1.4249009323e-1f);
  p = fma32(p, f, -1.6667808576e-1f);
  p = fma32(p, f, 2.0000717196e-1f);
  p = fma32(p, f, -2.4999996912e-1f);
  p = fma32(p, f, 3.3333331174e-1f);
  const float square = f * f;
  float y = p * f * square;
  y = fma32(k, -2.12194440e-4f, y);
  y = fma32(square, -0.5f, y);
  return fma32(k, 0.693359375f, f + y);
}

DI_BODY float sigmoid32(float x) { return 1.0f / (1.0f + exp32(-x)); }
DI_BODY float silu32(float x) { return x / (1.0f + exp32(-x)); }

// log(1 + e^x), x itself above 20 (model.md section 9).
DI_BODY float softplus32(float x) {
  const float e = exp32(x > 20.0f ? 20.0f : x);
  const float u = 1.0f + e;
  const float y = log32(u) + (e - (u - 1.0f)) / u;
  return x > 20.0f ? x : y;
}

DI_BODY float erf32(float x) {
  const float a = abs32(x);
  const float s = a * a;
  float p = fma32(s, -9.667045788e-6f, 1.126595940e-4f);
  p = fma32(p, s, -8.484080445e-4f);
  p = fma32(p, s, 5.221031809e-3f);
  p = fma32(p, s, -2.686543073e-2f);
  p = fma32(p, s, 1.128378250e-1f);
  p = fma32(p, s, -3.761263847e-1f);
  p = fma32(p, s, 1.128379167f);
  const float small = a * p;
  // 1 - e^(-a^2) q(a - 2.5) on [1, 4]; beyond, erf is 1 in FP32.
  const float b = (a > 4.0f ? 4.0f : a) - 2.5f;
  float q = fma32(b, 1.611890749e-6f, -6.377862276e-6f);
  q = fma32(q, b, 1.468955683e-5f);
  q = fma32(q, b, -5.362729453e-5f);
  q = fma32(q, b, 2.123135674e-4f);
  q = fma32(q, b, -7.389278863e-4f);
  q = fma32(q, b, 2.466508570e-3f);
  q = fma32(q, b, -7.999388865e-3f);
  q = fma32(q, b, 2.493805689e-2f);
  q = fma32(q, b, -7.434759370e-2f);
  q = fma32(q, b, 2.108063641e-1f);
  const float large = a > 4.0f ? 1.0f : 1.0f - exp32(-s) * q;
  const float y = a < 1.0f ? small : large;
  return bits_float(float_bits(y) | (float_bits(x) & 0x80000000u));
}

// base^exponent for set-up values; about 1e-15 relative. REQUIRES: base positive and normal, result normal.
DI_BODY double pow64(double base, double exponent) {
  union {
    double d;
    uint64_t u;
  } pun = {base};
  const uint64_t moved = pun.u + (0x3FF0000000000000u - 0x3FE6A09E667F3BCDu);
  const double k = static_cast<double>(static_cast<int64_t>(moved >> 52) - 1023);
  pun.u = (moved & 0xFFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu;
  // log(m) = 2 atanh((m - 1) / (m + 1)).
  const double s = (pun.d - 1.0) / (pun.d + 1.0);
  double log = 0.0;
  for (int i = 25; i >= 1; i -= 2) log = fma64(log, s * s, 1.0 / i);
  const double y = exponent * fma64(k, 0.69314718055994531, 2.0 * s * log);
  const double n = (y * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
  const double r = fma64(n, -2.3190468138462996e-17, fma64(n, -0.69314718055994531, y));
  double e = 1.0;
  for (int i = 16; i >= 1; --i) e = fma64(e, r / i, 1.0);
  pun.u = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
  return e * pun.d;
}

struct CosSin {
  float cos, sin;
};

// cos and sin of an FP32 angle up to about 10^6 (2^20 quarter turns are reduced exactly), computed in double.
DI_BODY CosSin cos_sin(float angle) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  const double x = static_cast<double>(angle);
  const double n = (x * 0.63661977236758134 + kRound) - kRound;
  double r = fma64(n, -1.5707963267948966, x);
  r = fma64(n, -6.123233995736766e-17, r);
  const double s = r * r;
  // Taylor series; at |r| <= pi/4 the first omitted terms are below 1e-16.
  double a = fma64(s, -1.0 / 1307674368000.0, 1.0 / 6227020800.0);
  a = fma64(a, s, -1.0 / 39916800.0);
  a = fma64(a, s, 1.0 / 362880.0);
  a = fma64(a, s, -1.0 / 5040.0);
  a = fma64(a, s, 1.0 / 120.0);
  a = fma64(a, s, -1.0 / 6.0);
  const double sine = fma64(a * s, r, r);
  double b = fma64(s, -1.0 / 87178291200.0, 1.0 / 479001600.0);
  b = fma64(b, s, -1.0 / 3628800.0);
  b = fma64(b, s, 1.0 / 40320.0);
  b = fma64(b, s, -1.0 / 720.0);
  b = fma64(b, s, 1.0 / 24.0);
  b = fma64(b, s, -0.5);
  const double cosine = fma64(b, s, 1.0);
  const int64_t quadrant = static_cast<int64_t>(n) & 3;
  const double c = quadrant & 1 ? sine : cosine;
  const double d = quadrant & 1 ? cosine : sine;
  return {static_cast<float>(quadrant == 1 || quadrant == 2 ? -c : c), static_cast<float>(quadrant >= 2 ? -d : d)};
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
