// core/kv_layout.h - where every byte of a KV page and of a sequence's state block lies.
//
// A page holds the global KV of 64 consecutive tokens: for each KV source in layer order main codes, main scales, index
// codes, index scales; every section starts at a multiple of 128 bytes. At release sizes it is 56,960 bytes.
// A state block holds what is not paged: window rings (codes then scales) of every layer and draft stage, the
// compressor tails of ratio-2 sources, and the ring of mapped Engram ids.
// One type owns all offsets, on host and device (spec: kv_cache.md sections 1 and 2).
#pragma once

#include <cstdint>
#include <vector>

#include "core/model_shape.h"

namespace deepinfer {

inline constexpr int32_t kPageTokens = 64;
// Ring slots beyond the window: rejected speculative rows and chunk heads must not overwrite what is still visible.
inline constexpr int32_t kRingSlack = 32;
// Compressor tails kept per ratio-2 source: one per open pair among the rows of one verification (block of 5 + 1).
inline constexpr int32_t kTailSlots = 4;
// Drafts verified at once: their rows must not overwrite the tail of a row that stays when they are rejected.
inline constexpr int32_t kMaxDraft = 2 * kTailSlots - 1;

// Sections of one KV source within a page; offsets and row sizes in bytes.
struct PageSection {
  int32_t layer = 0;
  int32_t ratio = 1;
  int32_t entries = 0;  // per page
  int64_t main_codes = 0, main_scales = 0, index_codes = 0, index_scales = 0;
};

struct KvLayout {
  int32_t page_tokens = kPageTokens;
  int32_t head_dim = 0, index_dim = 0;
  std::vector<PageSection> sections;  // one per KV source, in layer order
  int64_t page_bytes = 0;

  int32_t ring_slots = 0;        // window + kRingSlack
  int64_t ring_codes_bytes = 0;  // of one ring: ring_slots * head_dim
  int64_t ring_bytes = 0;        // codes and scales of one ring
  int32_t rings = 0;             // layers + draft stages
  int64_t tails_offset = 0;      // F32 [ratio-2 source][kTailSlots][value, gate][head_dim]
  int64_t history_offset = 0;    // I32 [ring_slots] mapped Engram ids
  int64_t state_bytes = 0;

  int64_t ring_offset(int32_t ring) const { return ring * ring_bytes; }
  int64_t tail_offset(int32_t ratio2_source) const {
    return tails_offset + int64_t{ratio2_source} * kTailSlots * 2 * head_dim * 4;
  }
  // Index into `sections` of a KV source layer, -1 if it is none.
  int32_t section_of(int32_t layer) const;
};

// `page_tokens` is a multiple of 8 (tests run with small pages).
KvLayout make_kv_layout(const ModelShape& shape, int32_t page_tokens = kPageTokens);

}  // namespace deepinfer
