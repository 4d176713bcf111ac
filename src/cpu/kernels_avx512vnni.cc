#define DI_ISA_NS avx512vnni_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"

namespace deepinfer::cpu {
namespace {

bool supported() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

}  // namespace

const Kernels kAvx512VnniKernels = tuned_kernels("avx512vnni", "AVX-512 F, BW, DQ, VL and VNNI", supported);

}  // namespace deepinfer::cpu
