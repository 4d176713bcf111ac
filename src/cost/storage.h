// cost/storage.h - what memory must hold for a model and its conversations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model_shape.h"

namespace deepinfer {

// Bytes of a checkpoint by part, as stored. Tables are those of which a step reads a few rows: embeddings and Engram.
struct CheckpointBytes {
  double dense = 0, experts = 0, tables = 0, head = 0, draft = 0, draft_experts = 0, vision = 0;
  double total() const { return dense + experts + tables + head + draft + draft_experts + vision; }
};

// One part of what one device holds, and of what lies in the memory of its host.
struct MemoryPart {
  std::string name;
  double device = 0, host = 0;
};
struct MemoryWork {
  int32_t streams = 1;       // conversations at once, of one device
  int64_t context = 0;       // tokens each may have
  int32_t step_rows = 512;   // of a chunk of prompts
  int32_t expert_ranks = 1;  // devices that share the experts
  bool processor = false;    // one memory for all; tables stay mapped files, which need none of their own
};
std::vector<MemoryPart> memory_parts(const ModelShape& shape, const CheckpointBytes& bytes, const MemoryWork& work);
MemoryPart sum_of(const std::vector<MemoryPart>& parts);

// The share of its routed experts that a processor keeps in `available` bytes for all of a model, or in `wanted` > 0 bytes for
// experts alone. `others` = what is no expert.
double resident_experts(double experts, double others, double available, double wanted);
// The share that is read from the disk when it is used: what is not resident, unless the cache of files has room for all of that
// in the `left` bytes; else it is read past that cache.
double experts_from_disk(double experts, double resident, double left);

}  // namespace deepinfer
