// cost/step_kernels.h - what the kernels of a step read and compute.
//
// Weights are counted as stored, each once a step; of routed experts those that rows choose when they choose evenly. What a
// kernel reads besides (cache rows, index keys, residual streams, table rows) is counted apart. Kernels that start from the
// same rows and need no order between them are one: their bytes and operations overlap.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/model_shape.h"
#include "cost/hardware.h"

namespace deepinfer {

enum class KernelGroup : uint8_t { kDense, kStreams, kExperts, kAttention, kIndex, kCompress, kEngram, kHead, kDraft };
inline constexpr size_t kKernelGroups = 9;
const char* kernel_group_name(KernelGroup group);

struct KernelCost {
  KernelGroup group;
  const char* name;
  double weights = 0;       // values
  double weight_bytes = 0;  // of these, scales included
  double other_bytes = 0;
  double fp4_flops = 0, fp8_flops = 0, wide_flops = 0;
};

// Rows of one device. Encoder rows run through the layers below the candidate layer and its compressor, decoder rows through the
// rest (core/step_plan.h). In decoding all three counts are equal; with drafts `rows` is several times `sequences`.
struct StepRows {
  double sequences = 1;
  double rows = 1;
  double decoder_rows = -1, logit_rows = -1;  // < 0: as `rows`
  double context = 0;                         // tokens a row sees, in the mean
  int32_t expert_ranks = 1;                   // devices with as many rows, each with its share of the experts
};
std::vector<KernelCost> step_kernels(const ModelShape& shape, const StepRows& step);
// One pass of the draft stages behind each sequence, and the context of `committed` tokens a sequence.
std::vector<KernelCost> draft_kernels(const ModelShape& shape, double sequences, double committed, int32_t expert_ranks = 1);

// Experts of a layer that so many rows choose at least once.
double distinct_experts(int32_t experts, int32_t per_token, double rows);

struct StepCost {
  double seconds = 0;
  std::array<double, kKernelGroups> by_group = {};  // seconds
  double read_seconds = 0;                          // of `seconds` those in which reading is the longer part
  double bytes = 0, flops = 0;
  void add(const StepCost& more, double times = 1);
};
double kernel_seconds(const KernelCost& kernel, const Hardware& hardware);
StepCost cost_of(const std::vector<KernelCost>& kernels, const Hardware& hardware);

}  // namespace deepinfer
