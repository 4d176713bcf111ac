#define DI_ISA_NS avx512vnni_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"

namespace deepinfer::cpu {
namespace {

bool supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c");
}

}  // namespace

const Kernels kAvx512VnniKernels = {"avx512vnni",
                                    "AVX-512 F, BW, DQ, VL and VNNI",
                                    supported,
                                    matmul,
                                    pack_panel,
                                    digitise,
                                    dots,
                                    multiply_adds,
                                    multiply_digits,
                                    attend_scores,
                                    attend_values,
                                    score,
                                    q8_row,
                                    q4e4_row};

}  // namespace deepinfer::cpu
