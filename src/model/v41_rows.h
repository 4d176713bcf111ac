// model/v41_rows.h - turns a StepPlan into the row arrays that operations read.
//
// The arrays of all row sets lie in one block with fixed offsets, so a step needs one upload. Which window rows a query
// sees depends on positions only (see WindowSpan): rows of the step itself are read from the step's buffer, older ones
// from the ring, because a long chunk overwrites the ring while its first rows still need the old content.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv_layout.h"
#include "core/step_plan.h"
#include "ops/ops.h"

namespace deepinfer {

// One row set (encoder rows or decoder rows). Pointers into the block: host while building, device when running.
struct RowArrays {
  int32_t* count;
  int32_t* source;              // [n] decoder: index among the encoder rows; encoder: unused
  int32_t* slots;               // [n]
  int32_t* positions;           // [n]
  WindowSpan* spans;            // [n] of layers other than the candidate layer
  WindowSpan* spans_candidate;  // [n] of the candidate layer: its window rows are the encoder's
  uint8_t* is_image;            // [n]
  uint8_t* ring_write;          // [n] 0 = would be overwritten within the step
  uint8_t* entry_write;         // [n] 0 = belongs to a cached page
};

struct StepArrays {
  RowArrays encoder, decoder;
  int32_t* tokens;     // [encoder rows]
  int32_t* image_row;  // [encoder rows] -1 = text
  int32_t* logit_count;
  int32_t* logit_source;  // [logit rows] index among the decoder rows
};

// Offsets of the arrays for a capacity; the same for the host block and the device block.
class StepArraysLayout {
 public:
  StepArraysLayout(int32_t max_rows, int32_t max_logits);
  int64_t bytes() const { return bytes_; }
  StepArrays at(uint8_t* block) const;

 private:
  int32_t max_rows_, max_logits_;
  int64_t bytes_;
};

struct StepCounts {
  int32_t encoder = 0, decoder = 0, logits = 0;
  bool images = false;
  bool candidate_window = false;  // some row is in a window of the candidate layer that a decoder row reads, now or later
};

// How many of its rows run all layers.
int32_t count_decoder_rows(const StepPlan& plan);
// Fills host arrays. REQUIRES: the plan fits the capacity.
StepCounts build_step_arrays(const StepPlan& plan, const KvLayout& layout, int32_t window, const StepArrays& out);

}  // namespace deepinfer
