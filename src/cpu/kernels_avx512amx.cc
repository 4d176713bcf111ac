#define DI_ISA_NS avx512amx_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tile_units.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"
#include "cpu/tuned_tiles.inc"

namespace deepinfer::cpu {
namespace {

bool supported() { return has_avx512() && __builtin_cpu_supports("avx512vnni") && has_tiles(); }

// What tiles can reach: both sides stay where they are.
int64_t multiply_tiles(int64_t steps) {
  alignas(64) uint8_t zeros[kTileBytes] = {};
  TileUnits units;
  units.configure(kUnitRows);
  units.load<4>(zeros, 64), units.load<6>(zeros, 64);
  units.zero<0>(), units.zero<1>(), units.zero<2>(), units.zero<3>();
  for (int64_t s = 0; s < steps; ++s) {
    units.add_products<0, 4, 6>(), units.add_products<1, 4, 6>();
    units.add_products<2, 4, 6>(), units.add_products<3, 4, 6>();
  }
  units.release();
  return steps * 4 * kUnitRows * kPanel * kBlock;
}

constexpr const char* kNeeds = "AVX-512 F, BW, DQ, VL and VNNI, AMX TILE and BF16, and the system's leave to use tiles";

}  // namespace

const Kernels kAvx512AmxKernels = tile_kernels<TileUnits>("avx512amx", kNeeds, supported, multiply_tiles);
const Kernels kAmxKernels = amx_kernels<TileUnits>("amx", kNeeds, supported, multiply_tiles);

}  // namespace deepinfer::cpu
