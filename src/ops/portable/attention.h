// ops/portable/attention.h - softmax with sink over window rows and selected entries (model.md section 6).
//
// Order: slots are ring rows oldest first, then rows of the step, then selected entries; window rows and selected entries
// each in chunks of kSoftmaxChunk from their first. Scores
// DOT * HD^-0.5; p = exp(score - running maximum) is rounded to BF16 chunk by chunk for the product with V, while the sum
// takes it unrounded in DOT order (the reference's numerics, determinism.md section 3 rule 3: with FP32 p the caches of
// later layers drift by 10 % instead of 5 % on the goldens). Both are then scaled to the final maximum; the sink's term
// comes last; o = (fma over slots ascending) * (1 / sum).
#pragma once

#include "ops/portable/kv.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

DI_BODY int64_t window_slots(const AttentionParams& p, int64_t row) {
  const WindowSpan& span = p.spans[row];
  return int64_t{span.ring_end} - span.ring_begin + span.batch_end - span.batch_begin;
}

DI_BODY int64_t num_slots(const AttentionParams& p, int64_t row) {
  int64_t count = window_slots(p, row);
  if (!p.selected) return count;
  const int32_t* selected = p.selected + row * p.top_k;
  for (int i = 0; i < p.top_k && selected[i] >= 0; ++i) ++count;
  return count;
}

// Where the packed row of one slot lies.
struct PackedRow {
  const uint8_t* codes;
  const uint8_t* scales;
  bool main;  // q4e4 entry of a page; else q8 window row
};

DI_BODY PackedRow packed_row(const AttentionParams& p, int64_t row, int64_t slot) {
  const WindowSpan& span = p.spans[row];
  const int64_t blocks = p.head_dim / kScaleBlock;
  const int64_t in_ring = span.ring_end - span.ring_begin, in_batch = span.batch_end - span.batch_begin;
  if (slot < in_ring) {
    const uint8_t* ring = p.states + p.slots[row] * p.state_bytes + p.ring_offset;
    const int64_t at = (span.ring_begin + slot) % p.ring_slots;
    return {ring + at * p.head_dim, ring + p.ring_codes_bytes + at * blocks, false};
  }
  if (slot < in_ring + in_batch) {
    const int64_t at = span.batch_begin + slot - in_ring;
    return {p.batch_codes + at * p.head_dim, p.batch_scales + at * blocks, false};
  }
  const int64_t entry = p.selected[row * p.top_k + slot - in_ring - in_batch];
  const uint8_t* page = page_of(p.view, p.slots[row], entry);
  const int64_t at = entry % p.view.section.entries;
  return {page + p.view.section.main_codes + at * p.head_dim / 2,
          page + p.view.section.main_scales + at * p.head_dim / kMainBlock, true};
}

// One channel of a slot's row.
DI_BODY float slot_value(const PackedRow& from, int i) {
  if (from.main) return e2m1_to_float(nibble_at(from.codes, i)) * e4m3_to_float(from.scales[i / kMainBlock]);
  return e4m3_to_float(from.codes[i]) * e8m0_to_float(from.scales[i / kScaleBlock]);
}

DI_BODY void load_slot(const AttentionParams& p, int64_t row, int64_t slot, float* out) {
  const PackedRow from = packed_row(p, row, slot);
  if (from.main)
    dequantize_q4e4(from.codes, from.scales, p.head_dim, out);
  else
    dequantize_q8(from.codes, from.scales, p.head_dim, out);
}

inline constexpr int64_t kSoftmaxChunk = 64;

DI_BODY float largest(const float* scores, int64_t slots) {
  float lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = scores[0];
  int64_t j = 0;
  for (; j + kLanes <= slots; j += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] = max32(lane[l], scores[j + l]);
  }
  for (; j < slots; ++j) lane[0] = max32(lane[0], scores[j]);
  for (int l = 1; l < kLanes; ++l) lane[0] = max32(lane[0], lane[l]);
  return lane[0];
}

// scores -> weights of V in place; returns the sum of p and sets the maximum. REQUIRES: slots > 0.
// Chunks start anew at slot `window`.
DI_BODY float exponentials(float* scores, int64_t window, int64_t slots, int64_t chunk, float* maximum) {
  float top = -1e30f, sum = 0.0f;
  for (int64_t begin = 0, end; begin < slots; begin = end) {
    const int64_t part_end = begin < window ? window : slots;
    end = begin + chunk < part_end ? begin + chunk : part_end;
    const float before = top;
    top = max32(top, largest(scores + begin, end - begin));
    const float shrink = exp32(before - top);
    if (shrink != 1.0f) {
      for (int64_t j = 0; j < begin; ++j) scores[j] *= shrink;
    }
    float* p = scores + begin;
    for (int64_t j = 0; j < end - begin; ++j) p[j] = exp32(p[j] - top);
    sum = sum * shrink + sum_of(static_cast<int>(end - begin), [=](int i) { return p[i]; });
    for (int64_t j = 0; j < end - begin; ++j) p[j] = round_bf16(p[j]);
  }
  *maximum = top;
  return sum;
}

// 1 / (sum of p + the sink's term).
DI_BODY float softmax_with_sink(float* scores, int64_t window, int64_t slots, float sink) {
  float top;
  const float sum = exponentials(scores, window, slots, kSoftmaxChunk, &top);
  return 1.0f / (sum + exp32(sink - top));
}

// Without a sink (vision), all slots in one chunk.
DI_BODY float softmax(float* scores, int64_t slots) {
  float top;
  return 1.0f / exponentials(scores, slots, slots, slots, &top);
}

DI_BODY float attention_scale(int head_dim) { return 1.0f / sqrt32(static_cast<float>(head_dim)); }

}  // namespace DI_ISA_NS
}  // namespace deepinfer
