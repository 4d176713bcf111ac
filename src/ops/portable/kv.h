// ops/portable/kv.h - rotary tables and rotation, window rows, ring writes, pooling, page entries, index queries.
#pragma once

#include "ops/portable/rows.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

DI_BODY void rope_table_at(const RopeTableParams& p, int64_t row, int i) {
  const CosSin v = cos_sin(static_cast<float>(p.positions[row]) * p.freq[i]);
  p.cos_sin[(row * p.half + i) * 2] = v.cos;
  p.cos_sin[(row * p.half + i) * 2 + 1] = v.sin;
}

// (a, b) -> (a c - b s, a s + b c): two products and one sum each, no fma (model.md section 4). Written with two sums, because
// GCC 12 makes one fused instruction of a difference beside a sum (vfmaddsub), contraction off or not.
DI_BODY void rotate(float& a, float& b, float c, float s) {
  const float t = -s;
  const float x = a * c + b * t;
  const float y = b * c + a * s;
  a = x;
  b = y;
}

DI_BODY void rope_pair(const RopeParams& p, int64_t row, int head, int pair) {
  const float* table = p.cos_sin + row * p.rope_dim + 2 * pair;
  Bf16* x = p.x + (row * p.heads + head + 1) * p.head_dim - p.rope_dim + 2 * pair;
  float a = to_float(x[0]), b = to_float(x[1]);
  rotate(a, b, table[0], p.inverse ? -table[1] : table[1]);
  x[0] = to_bf16(a);
  x[1] = to_bf16(b);
}

DI_BODY void rope_row(const RopeParams& p, int64_t row) {
  for (int h = 0; h < p.heads; ++h) {
    for (int i = 0; i < p.rope_dim / 2; ++i) rope_pair(p, row, h, i);
  }
}

// Rotates the part of v = channels [begin, begin + count) that lies in the last rope_dim of `width`, rounding to BF16.
DI_BODY void rotate_block(float* v, int begin, int count, int width, int rope_dim, const float* table) {
  for (int i = 0; i < count; i += 2) {
    const int at = begin + i - (width - rope_dim);
    if (at < 0) continue;
    rotate(v[i], v[i + 1], table[at], table[at + 1]);
    v[i] = round_bf16(v[i]);
    v[i + 1] = round_bf16(v[i + 1]);
  }
}

DI_BODY void window_kv_block(const WindowKvParams& p, int64_t row, int b, float factor) {
  const int begin = b * kScaleBlock;
  const Bf16* kv = p.kv + row * p.head_dim + begin;
  float v[kScaleBlock];
  for (int i = 0; i < kScaleBlock; ++i) v[i] = rms_apply(p.weight[begin + i], to_float(kv[i]), factor);
  rotate_block(v, begin, kScaleBlock, p.head_dim, p.rope_dim, p.cos_sin + row * p.rope_dim);
  p.scales[row * (p.head_dim / kScaleBlock) + b] = quantize_q8(v, p.codes + row * p.head_dim + begin);
}

DI_BODY void window_kv_row(const WindowKvParams& p, int64_t row) {
  const float factor = rms_factor(p.kv + row * p.head_dim, p.head_dim, p.eps);
  for (int b = 0; b < p.head_dim / kScaleBlock; ++b) window_kv_block(p, row, b, factor);
}

DI_BODY void ring_write_block(const RingWriteParams& p, int64_t row, int b) {
  if (!p.write[row]) return;
  const int blocks = p.head_dim / kScaleBlock;
  uint8_t* ring = p.states + p.slots[row] * p.state_bytes + p.ring_offset;
  const int64_t at = p.positions[row] % p.ring_slots * blocks + b, from = row * blocks + b;
  for (int i = 0; i < kScaleBlock; ++i) ring[at * kScaleBlock + i] = p.codes[from * kScaleBlock + i];
  ring[p.ring_codes_bytes + at] = p.scales[from];
}

DI_BODY void ring_write_row(const RingWriteParams& p, int64_t row) {
  for (int b = 0; b < p.head_dim / kScaleBlock; ++b) ring_write_block(p, row, b);
}

DI_BODY float* pool_tail(const PoolPairsParams& p, int64_t row, int64_t even_position) {
  uint8_t* state = p.states + p.slots[row] * p.state_bytes + p.tail_offset;
  return reinterpret_cast<float*>(state) + even_position / 2 % kTailSlots * 2 * p.head_dim;
}

DI_BODY bool same_run(const int32_t* slots, const int32_t* positions, int64_t row, int64_t other) {
  return slots[other] == slots[row] && positions[other] - positions[row] == other - row;
}

// First pass: latents of the odd positions. Reads tails left by earlier steps, so it runs before any tail is written.
DI_BODY void pool_pairs_range(const PoolPairsParams& p, int64_t row, int begin, int end) {
  const int64_t position = p.positions[row];
  if (position % 2 == 0) return;
  const bool in_step = row > 0 && same_run(p.slots, p.positions, row, row - 1);
  const float* tail = pool_tail(p, row, position - 1);
  const float* value0 = in_step ? p.value + (row - 1) * p.head_dim : tail;
  const float* gate0 = in_step ? p.gate + (row - 1) * p.head_dim : tail + p.head_dim;
  const float* value1 = p.value + row * p.head_dim;
  const float* gate1 = p.gate + row * p.head_dim;
  Bf16* latent = p.latent + row * p.head_dim;
  for (int d = begin; d < end; ++d) {
    const float top = max32(gate0[d], gate1[d]);
    const float e0 = exp32(gate0[d] - top), e1 = exp32(gate1[d] - top);
    const float sum = e0 + e1;
    latent[d] = to_bf16(value0[d] * (e0 / sum) + value1[d] * (e1 / sum));
  }
}

// Second pass: each of the last kTailSlots even positions of a slot leaves its value and gate, so that any prefix of the
// step's rows can be kept (rejected drafts) and no two rows write the same tail.
DI_BODY void pool_pairs_tail_range(const PoolPairsParams& p, int64_t row, int64_t num_rows, int begin, int end) {
  const int64_t position = p.positions[row], later = row + 2 * kTailSlots;
  if (position % 2 != 0 || (later < num_rows && same_run(p.slots, p.positions, row, later))) return;
  float* tail = pool_tail(p, row, position);
  for (int d = begin; d < end; ++d) {
    tail[d] = p.value[row * p.head_dim + d];
    tail[p.head_dim + d] = p.gate[row * p.head_dim + d];
  }
}

// Page of entry j of a slot.
DI_BODY uint8_t* page_of(const PageView& view, int64_t slot, int64_t entry) {
  return view.pages + view.table[slot * view.table_stride + entry / view.section.entries] * view.page_bytes;
}

DI_BODY void write_main_block(const WriteEntriesParams& p, int64_t row, int64_t entry, const float* table, int b) {
  const PageView& view = p.view;
  const int width = view.head_dim;
  uint8_t* page = page_of(view, p.slots[row], entry);
  const int64_t at = entry % view.section.entries;
  uint8_t* codes = page + view.section.main_codes + at * width / 2;
  uint8_t* scales = page + view.section.main_scales + at * width / kMainBlock;
  float v[kMainBlock];
  uint8_t nibbles[kMainBlock];
  load_bf16(p.latent + row * width + b * kMainBlock, kMainBlock, v);
  rotate_block(v, b * kMainBlock, kMainBlock, width, p.rope_dim, table);
  scales[b] = quantize_q4e4(v, nibbles);
  pack_nibbles(nibbles, kMainBlock, codes + b * kMainBlock / 2);
}

DI_BODY void write_index_block(const WriteEntriesParams& p, int64_t row, int64_t entry, const float* table, float factor, int b) {
  const PageView& view = p.view;
  const int width = view.index_dim;
  uint8_t* page = page_of(view, p.slots[row], entry);
  const int64_t at = entry % view.section.entries;
  uint8_t* codes = page + view.section.index_codes + at * width / 2;
  uint8_t* scales = page + view.section.index_scales + at * width / kScaleBlock;
  const Bf16* key = p.key + row * width;
  const int begin = b * kScaleBlock;
  float v[kScaleBlock];
  uint8_t nibbles[kScaleBlock];
  for (int i = 0; i < kScaleBlock; ++i) v[i] = rms_apply(p.key_norm[begin + i], to_float(key[begin + i]), factor);
  rotate_block(v, begin, kScaleBlock, width, p.rope_dim, table);
  scales[b] = quantize_q4e8(v, nibbles);
  pack_nibbles(nibbles, kScaleBlock, codes + begin / 2);
}

// The entry a row finishes, -1 if none.
DI_BODY int64_t finished_entry(const WriteEntriesParams& p, int64_t row) {
  const int64_t position = p.positions[row];
  if ((position + 1) % p.view.section.ratio != 0 || (p.write && !p.write[row])) return -1;
  return position / p.view.section.ratio;
}

DI_BODY void entry_rope_at(const WriteEntriesParams& p, int64_t entry, int i, float* table) {
  const CosSin v = cos_sin(static_cast<float>(entry * p.view.section.ratio) * p.freq[i]);
  table[2 * i] = v.cos;
  table[2 * i + 1] = v.sin;
}

DI_BODY void write_entries_row(const WriteEntriesParams& p, int64_t row) {
  const int64_t entry = finished_entry(p, row);
  if (entry < 0) return;
  float table[kMaxRopeDim];
  for (int i = 0; i < p.rope_dim / 2; ++i) entry_rope_at(p, entry, i, table);
  for (int b = 0; b < p.view.head_dim / kMainBlock; ++b) write_main_block(p, row, entry, table, b);
  const float factor = rms_factor(p.key + row * p.view.index_dim, p.view.index_dim, p.eps);
  for (int b = 0; b < p.view.index_dim / kScaleBlock; ++b) write_index_block(p, row, entry, table, factor, b);
}

DI_BODY void index_query_block(const IndexQueryParams& p, int64_t row, int head, int b) {
  const int begin = b * kScaleBlock;
  Bf16* q = p.q + (row * p.heads + head) * p.dim + begin;
  float v[kScaleBlock];
  uint8_t nibbles[kScaleBlock];
  load_bf16(q, kScaleBlock, v);
  rotate_block(v, begin, kScaleBlock, p.dim, p.rope_dim, p.cos_sin + row * p.rope_dim);
  const float s = e8m0_to_float(quantize_q4e8(v, nibbles));
  for (int i = 0; i < kScaleBlock; ++i) q[i] = to_bf16(e2m1_to_float(nibbles[i]) * s);
}

DI_BODY void index_query_row(const IndexQueryParams& p, int64_t row) {
  for (int h = 0; h < p.heads; ++h) {
    for (int b = 0; b < p.dim / kScaleBlock; ++b) index_query_block(p, row, h, b);
  }
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
