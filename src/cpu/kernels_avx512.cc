#define DI_ISA_NS avx512_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tuned.inc"
#include "cpu/tuned_fp4.inc"
#include "cpu/tuned_matmul.inc"

namespace deepinfer::cpu {
namespace {

bool supported() { return has_avx512(); }

}  // namespace

const Kernels kAvx512Kernels = tuned_kernels("avx512", "AVX-512 F, BW, DQ and VL", supported);

}  // namespace deepinfer::cpu
