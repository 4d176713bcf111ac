// cpu/tile_units.h - the processor's tiles (AMX) as the kernels see them: eight registers of 16 rows of 64 bytes. Only for the
// sets with tiles; a test has the same in plain C++ (emulated_tiles_test.cc).
//
// The instructions are written out, for GCC 12's own functions do not tell the compiler that a load reads memory.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace deepinfer::cpu {
namespace {

struct TileUnits {
  // Registers 0 to 5 (sums and inputs) have `rows` rows, 6 and 7 (weights) 16. A thread's first tile instruction enters the
  // system, which allocates 8 KB of context for it and keeps them until the thread ends: Kernels::begin_thread does so outside
  // of steps. Until release() they are saved and restored at every switch of threads, too.
  void configure(int rows) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (int i = 0; i < 8; ++i) shape.row_bytes[i] = 64, shape.rows[i] = static_cast<uint8_t>(i < 6 ? rows : 16);
    asm volatile("ldtilecfg %0" ::"m"(shape));
  }
  void release() { asm volatile("tilerelease"); }
  template <int T>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(T));
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
  }
  // C += A * B of pairs of BF16: every even and every odd column apart, then both together.
  template <int C, int A, int B>
  void add_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

// Whether this process may use tiles. The system is asked for the 8 KB of context that every thread then may need; to ask again
// changes nothing.
inline bool has_tiles() {
  constexpr long kAskForState = 0x1023, kTileData = 18;
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         ::syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

}  // namespace
}  // namespace deepinfer::cpu
