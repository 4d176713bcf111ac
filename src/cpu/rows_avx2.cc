#define DI_ISA_NS avx2_rows_isa
#include "cpu/kernels.h"
#include "cpu/simd_avx2.h"
#include "cpu/tuned_rows.inc"

namespace deepinfer::cpu {

const RowKernels kAvx2Rows = kRowBodies;

}  // namespace deepinfer::cpu
