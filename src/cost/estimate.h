// cost/estimate.h - how fast one device decodes and computes prompts, and what shares the work best.
//
// Times are those of the hardware given: its limits, or what kernels reach of them (as_reached). A device stands for a GPU
// among `ranks` that share the experts, or for a whole machine without one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/step_kernels.h"

namespace deepinfer {

enum class Bound : uint8_t { kMemory, kProducts, kNetwork, kDisk };
const char* bound_name(Bound bound);

struct DecodeWork {
  double streams = 1;  // conversations of one device
  double context = 0;  // tokens they have, in the mean
  // Drafts verified for each and tokens that come of a step; 0 and 1 = no speculation.
  double drafts = 0, accepted = 1;
  int32_t ranks = 1;     // devices that share the experts
  double from_disk = 0;  // share of the routed experts that is read from the disk when used
};
struct DecodeEstimate {
  StepCost step;                                // with the draft pass
  double exchange = 0, disk = 0, barriers = 0;  // seconds of a step; the exchange overlaps with it, the disk with experts
  double seconds = 0;                           // of a step, all in all
  double per_user = 0, per_device = 0;          // tokens a second
  Bound bound = Bound::kMemory;
};
DecodeEstimate estimate_decode(const ModelShape& shape, const Hardware& hardware, const DecodeWork& work);

struct PromptWork {
  double tokens = 0, cached = 0;  // of the prompt; the first of them that the cache has
  double chunk = 512;             // rows of a step
  double keep = 0;                // decoder layers see so many last tokens; 0 = all of them
  int32_t ranks = 1;
  double from_disk = 0;
};
struct PromptEstimate {
  StepCost steps;
  double exchange = 0, disk = 0, barriers = 0, seconds = 0;
  Bound bound = Bound::kProducts;
};
PromptEstimate estimate_prompt(const ModelShape& shape, const Hardware& hardware, const PromptWork& work);

// Bytes a row sends: its input to each chosen expert as e4m3, and each of their outputs back as BF16.
double exchange_bytes(const ModelShape& shape, double rows);

// Operations of one picture of so many tokens in the vision tower and aligner.
double picture_flops(const ModelShape& shape, double tokens);

// The most streams up to `most` that `good` holds of; 0 = not even of one. What holds of more holds of fewer.
int32_t most_streams(int32_t most, const std::function<bool(int32_t)>& good);

}  // namespace deepinfer
