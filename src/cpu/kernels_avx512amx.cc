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

bool supported() { return has_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("gfni") && has_tiles(); }

}  // namespace

const Kernels kAvx512AmxKernels = tile_kernels<TileUnits>(
    "avx512amx", "AVX-512 F, BW, DQ, VL, VNNI and GFNI, AMX TILE and BF16, and the system's leave to use tiles", supported);

}  // namespace deepinfer::cpu
