// cuda/context.h - what the operations of one CUDA device share, and where they are entered. Internal to `cuda`.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/ops.h"

namespace deepinfer::cuda {

// Rows that use scratch at the same time (Device::parallelism): enough to fill half an H200, and bounded, because each
// row of `sample` needs 1 MB and each row of `select` 4 bytes per entry of its context.
inline constexpr int kScratchRows = 64;

struct GpuContext {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
};

// One function per operation, in the .cu file of its kind.
#define DI_OP(name, Params) void run_##name(const GpuContext& context, const Params& p);
#include "ops/op_list.inc"
#undef DI_OP

// The two products on tensor cores (mma_ops.cu); shapes they do not take go to the functions above.
void run_mma_matmul(const GpuContext& context, const MatmulParams& p);
void run_mma_grouped_matmul(const GpuContext& context, const GroupedMatmulParams& p);

// Kernels that need more than 48 KB of shared memory say so once, before anything is recorded.
cudaError_t prepare_matmul();
cudaError_t prepare_mma();
cudaError_t prepare_attention();
cudaError_t prepare_select();

// Reads `bytes` of device memory and writes one float per thread into `sink` (at least 4 MB): for measuring.
void run_read(const GpuContext& context, const void* from, int64_t bytes, float* sink);

}  // namespace deepinfer::cuda
