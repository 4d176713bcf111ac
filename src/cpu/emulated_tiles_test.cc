// The kernels for tiles with tiles in plain C++, as the manual defines the instructions: what matmul_test.cc and digits_test.cc
// check on any machine with AVX-512. Compiled for it (cmake/isa.cmake), so nothing of gtest's is here.
#define DI_ISA_NS emulated_tiles_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"
#include "cpu/tuned_tiles.inc"

namespace deepinfer::cpu {

extern int64_t emulated_products;
int64_t emulated_products = 0;

namespace {

struct EmulatedTiles {
  struct Row {
    uint8_t bytes[64];
  };
  Row registers[8][16];
  int rows_of[8];

  void configure(int rows) {
    for (int t = 0; t < 8; ++t) rows_of[t] = t < 6 ? rows : 16;
    release();
  }
  void release() { __builtin_memset(registers, 0, sizeof registers); }
  template <int T>
  void zero() {
    __builtin_memset(registers[T], 0, sizeof registers[T]);
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    zero<T>();
    for (int r = 0; r < rows_of[T]; ++r) __builtin_memcpy(&registers[T][r], static_cast<const uint8_t*>(from) + r * stride, 64);
  }
  template <int T>
  void store(void* to, int64_t stride) {
    for (int r = 0; r < rows_of[T]; ++r) __builtin_memcpy(static_cast<uint8_t*>(to) + r * stride, &registers[T][r], 64);
  }

  // Subnormal numbers are zero, going in and coming out.
  static float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; }
  static float half(const Row& row, int i) {
    uint16_t bits;
    __builtin_memcpy(&bits, row.bytes + 2 * i, 2);
    return flushed(__builtin_bit_cast(float, uint32_t{bits} << 16));
  }
  template <int C, int A, int B>
  void add_products() {
    __atomic_fetch_add(&emulated_products, 1, __ATOMIC_RELAXED);
    for (int m = 0; m < rows_of[C]; ++m) {
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0, sum;
        for (int k = 0; k < 16; ++k) {
          even = flushed(__builtin_fmaf(half(registers[A][m], 2 * k), half(registers[B][k], 2 * n), even));
          odd = flushed(__builtin_fmaf(half(registers[A][m], 2 * k + 1), half(registers[B][k], 2 * n + 1), odd));
        }
        __builtin_memcpy(&sum, registers[C][m].bytes + 4 * n, 4);
        sum = flushed(flushed(sum) + flushed(even + odd));
        __builtin_memcpy(registers[C][m].bytes + 4 * n, &sum, 4);
      }
    }
  }
};

bool supported() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

}  // namespace

extern const Kernels kEmulatedTileKernels, kEmulatedAmxKernels;
const Kernels kEmulatedTileKernels = tile_kernels<EmulatedTiles>("emulated tiles", "AVX-512 with VNNI", supported);
const Kernels kEmulatedAmxKernels = amx_kernels<EmulatedTiles>("amx", "AVX-512 with VNNI", supported);

}  // namespace deepinfer::cpu
