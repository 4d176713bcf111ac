// Without GFNI: tiles take e4m3 codes in the order of columns (simd_avx512.h, order_e4m3).
#ifdef __GFNI__
#error "compile without -mgfni: order_e4m3() would give panels in an order that decode_e4m3() does not know"
#endif
#define DI_ISA_NS amx_isa
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

}  // namespace

const Kernels kAmxKernels = amx_kernels<TileUnits>(
    "amx", "AVX-512 F, BW, DQ, VL and VNNI, AMX TILE and BF16, and the system's leave to use tiles", supported);

}  // namespace deepinfer::cpu
