// ops/portable/select.h - index scores, the exact top-k, candidate blocks (model.md section 8).
#pragma once

#include "ops/portable/kv.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

// A key whose unsigned order is the float order; -0 and +0 are equal.
DI_BODY uint32_t ordered_bits(float value) {
  const uint32_t bits = float_bits(value + 0.0f);
  return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

// A kept set: everything above `key` and the first `ties` entries equal to it.
struct Cut {
  uint32_t key;
  int64_t ties;
};

// The cut after which weights of the entries, taken in order (value descending, index ascending), first reach `target`.
// key(i) is the entry's ordered_bits(), weight(i) an integer, the same for equal keys, 0 = not there. Integers add up the
// same in any order, so three histogram passes do: no sort, no memory but 16 KB of stack, no time that depends on values.
// REQUIRES: 1 <= target <= sum of all weights.
template <class K, class W>
DI_BODY Cut find_cut(int64_t n, uint64_t target, K key, W weight) {
  uint32_t cut = 0, known = 0;
  for (int shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift == 10 ? 0 : -1) {
    const uint32_t bins = shift == 0 ? 1024 : 2048;
    uint64_t histogram[2048] = {};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t k = key(i);
      if ((k & known) == cut) histogram[k >> shift & (bins - 1)] += weight(i);
    }
    uint32_t bin = bins - 1;
    while (histogram[bin] < target) target -= histogram[bin--];
    cut |= bin << shift;
    known |= (bins - 1) << shift;
  }
  uint64_t each = 0;
  for (int64_t i = 0; each == 0; ++i) each = key(i) == cut ? weight(i) : 0;
  return {cut, static_cast<int64_t>((target + each - 1) / each)};
}

// Calls emit(i), ascending, for the k largest of value(0 .. n-1), ties to the lower index.
template <class V, class E>
DI_BODY void top_k_ascending(int64_t n, int64_t k, V value, E emit) {
  if (n <= k) {
    for (int64_t i = 0; i < n; ++i) emit(i);
    return;
  }
  const auto key = [&](int64_t i) { return ordered_bits(value(i)); };
  Cut cut = find_cut(n, static_cast<uint64_t>(k), key, [](int64_t) { return uint64_t{1}; });
  for (int64_t i = 0; i < n; ++i) {
    if (key(i) > cut.key)
      emit(i);
    else if (key(i) == cut.key && cut.ties > 0)
      emit(i), --cut.ties;
  }
}

DI_BODY int64_t num_visible(const SelectParams& p, int64_t row) { return (int64_t{p.positions[row]} + 1) / p.view.section.ratio; }

// The entries a row scores form a list: all visible ones, or those of its candidate blocks.
DI_BODY int64_t num_listed(const SelectParams& p, int64_t row) {
  const int64_t visible = num_visible(p, row);
  if (p.mode != SelectMode::kWithinCandidates) return visible;
  const int32_t* blocks = p.candidates + row * p.candidate_blocks;
  int64_t count = 0;
  for (int b = 0; b < p.candidate_blocks && blocks[b] >= 0; ++b) {
    const int64_t left = visible - int64_t{blocks[b]} * p.candidate_block;
    count += left < p.candidate_block ? (left < 0 ? 0 : left) : p.candidate_block;
  }
  return count;
}

DI_BODY int64_t listed_entry(const SelectParams& p, int64_t row, int64_t i) {
  if (p.mode != SelectMode::kWithinCandidates) return i;
  const int32_t* blocks = p.candidates + row * p.candidate_blocks;
  return int64_t{blocks[i / p.candidate_block]} * p.candidate_block + i % p.candidate_block;
}

struct IndexKey {
  const uint8_t* codes;
  const uint8_t* scales;
};

DI_BODY IndexKey index_key(const PageView& view, int64_t slot, int64_t entry) {
  const uint8_t* page = page_of(view, slot, entry);
  const int64_t at = entry % view.section.entries;
  return {page + view.section.index_codes + at * view.index_dim / 2,
          page + view.section.index_scales + at * view.index_dim / kScaleBlock};
}

DI_BODY float fold_score(float sum, float weight, float score) { return fma32(weight, score > 0.0f ? score : 0.0f, sum); }

// The definition of one score; tuned kernels give the same bits.
template <class Dot = SerialDot>
DI_BODY float index_score(const SelectParams& p, int64_t row, int64_t entry, Dot dot = {}) {
  const int dim = p.view.index_dim;
  const IndexKey key = index_key(p.view, p.slots[row], entry);
  const auto key_value = [&](int i) {
    return e2m1_to_float(nibble_at(key.codes, i)) * e8m0_to_float(key.scales[i / kScaleBlock]);
  };
  float sum = 0.0f;
  for (int h = 0; h < p.heads; ++h) {
    const Bf16* q = p.q + (row * p.heads + h) * dim;
    sum = fold_score(sum, to_float(p.w[row * p.heads + h]),
                     dot(
                         dim, [=](int i) { return to_float(q[i]); }, key_value));
  }
  return sum;
}

// From the scores of a row's list to `selected` and, in the candidate source, `candidates`. Destroys the scores.
DI_BODY void select_finish(const SelectParams& p, int64_t row, float* scores, int64_t listed) {
  int32_t* selected = p.selected + row * p.top_k;
  int32_t taken = 0;
  if (p.scores_out) {
    float* out = p.scores_out + row * p.max_entries;
    for (int64_t i = 0; i < p.max_entries; ++i) out[i] = -bits_float(0x7F800000u);
    for (int64_t i = 0; i < listed; ++i) out[listed_entry(p, row, i)] = scores[i];
  }
  top_k_ascending(
      listed, p.top_k, [=](int64_t i) { return scores[i]; },
      [&](int64_t i) { selected[taken++] = static_cast<int32_t>(listed_entry(p, row, i)); });
  while (taken < p.top_k) selected[taken++] = -1;
  if (p.mode != SelectMode::kPublishCandidates) return;
  const int64_t blocks = (listed + p.candidate_block - 1) / p.candidate_block;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * p.candidate_block;
    const int64_t end = begin + p.candidate_block < listed ? begin + p.candidate_block : listed;
    float top = scores[begin];
    for (int64_t i = begin + 1; i < end; ++i) top = max32(top, scores[i]);
    scores[b] = b == blocks - 1 ? bits_float(0x7F800000u) : top;  // the newest block always stays
  }
  int32_t* candidates = p.candidates + row * p.candidate_blocks;
  taken = 0;
  top_k_ascending(
      blocks, p.candidate_blocks, [=](int64_t i) { return scores[i]; },
      [&](int64_t i) { candidates[taken++] = static_cast<int32_t>(i); });
  while (taken < p.candidate_blocks) candidates[taken++] = -1;
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
