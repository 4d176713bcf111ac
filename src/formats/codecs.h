// formats/codecs.h - the number formats of a V4.1 checkpoint and cache, for host and device compilers alike.
//
//   bf16   upper half of an FP32
//   e4m3   1-4-3, bias 7, finite only (0x7F/0xFF = NaN), largest 448
//   e8m0   byte b = 2^(b-127), 255 = NaN
//   e2m1   sign, then magnitude {0, .5, 1, 1.5, 2, 3, 4, 6}; two codes per byte, low nibble first
// Rounding is to nearest, ties to even. All conversions are exact where the target can hold the value (model.md section 4).
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define DI_HD __host__ __device__ inline
#else
// Always inlined: files compiled for different instruction sets include this, and no shared copy may reach the linker.
#define DI_HD [[gnu::always_inline]] inline
#endif

namespace deepinfer {

struct Bf16 {
  uint16_t bits;
};

DI_HD uint32_t float_bits(float value) {
  union {
    float f;
    uint32_t u;
  } pun = {value};
  return pun.u;
}

DI_HD float bits_float(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } pun = {bits};
  return pun.f;
}

DI_HD float to_float(Bf16 value) { return bits_float(uint32_t{value.bits} << 16); }

DI_HD Bf16 to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40;
  return {static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded)};
}

DI_HD float round_bf16(float value) { return to_float(to_bf16(value)); }

DI_HD float e8m0_to_float(uint8_t code) {
  // 2^-127 is an FP32 subnormal; 255 is NaN.
  return code == 0 ? bits_float(0x00400000u) : code == 255 ? bits_float(0x7FC00000u) : bits_float(uint32_t{code} << 23);
}

// Smallest e8m0 code whose value is >= t (pow2ceil). REQUIRES: t a positive normal FP32, result below 2^128.
DI_HD uint8_t e8m0_ceil(float t) {
  const uint32_t bits = float_bits(t);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0));
}

DI_HD float e4m3_to_float(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24;
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t subnormal = float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0.001953125f);  // * 2^-9
  return bits_float(sign | (magnitude == 0x7F ? 0x7FC00000u : magnitude < 8 ? subnormal : normal));
}

// Saturates at +-448.
DI_HD uint8_t to_e4m3(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Below 2^-6 the steps are 2^-9, rounded by the FP32 adder.
  const uint32_t subnormal = float_bits(bits_float(magnitude) * 512.0f + 12582912.0f) & 0xFu;
  const uint32_t rounded = ((magnitude + 0x7FFFFu + (magnitude >> 20 & 1)) >> 20) - (120u << 3);
  const uint32_t normal = rounded > 0x7E ? 0x7Eu : rounded;
  const uint32_t code = magnitude > 0x7F800000u ? 0x7Fu : magnitude < 0x3C800000u ? subnormal : normal;
  return static_cast<uint8_t>(sign | code);
}

DI_HD float e2m1_to_float(uint8_t code) {
  // A 4-bit code is an exponent of two bits over one mantissa bit: 0.5 * 2^e * (1 + m/2), or m/2 for e = 0.
  const uint32_t magnitude = code & 7u;
  const uint32_t sign = uint32_t{code & 8u} << 28;
  const uint32_t normal = (magnitude << 22) + (126u << 23);
  const uint32_t subnormal = magnitude == 0 ? 0u : 0x3F000000u;
  return bits_float(sign | (magnitude < 2 ? subnormal : normal));
}

// REQUIRES: |value| <= 6. Keeps the sign of zero.
DI_HD uint8_t to_e2m1(float value) {
  const uint8_t sign = static_cast<uint8_t>(float_bits(value) >> 28 & 8u);
  const float a = bits_float(float_bits(value) & 0x7FFFFFFFu);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(sign | code);
}

}  // namespace deepinfer
