#define DI_ISA_NS avx512gfni_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"

namespace deepinfer::cpu {
namespace {

bool supported() { return has_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("gfni"); }

}  // namespace

const Kernels kAvx512GfniKernels = tuned_kernels("avx512gfni", "AVX-512 F, BW, DQ, VL, VNNI and GFNI", supported);

}  // namespace deepinfer::cpu
