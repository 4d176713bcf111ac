#define DI_ISA_NS avx512_rows_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx512.h"
#include "cpu/tuned_rows.inc"

namespace deepinfer::cpu {

const RowKernels kAvx512Rows = kRowBodies;

}  // namespace deepinfer::cpu
