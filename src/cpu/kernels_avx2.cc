#define DI_ISA_NS avx2_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx2.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"

namespace deepinfer::cpu {
namespace {

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }

}  // namespace

const Kernels kAvx2Kernels = tuned_kernels("avx2", "AVX2, FMA and F16C", supported);

}  // namespace deepinfer::cpu
