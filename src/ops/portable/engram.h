// ops/portable/engram.h - n-gram hashing, row gather, gated mixing (model.md section 10).
#pragma once

#include "ops/portable/kv.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

inline constexpr int32_t kDeadId = -1;
inline constexpr int kMaxNgram = 8;

DI_BODY int32_t* engram_history(const EngramHashParams& p, int64_t row) {
  return reinterpret_cast<int32_t*>(p.states + p.slots[row] * p.state_bytes + p.history_offset);
}

DI_BODY int32_t engram_id(const EngramHashParams& p, int64_t row) {
  return p.is_image && p.is_image[row] ? kDeadId : p.token_map[token_row(p.tokens[row])];
}

// First pass: hash rows. Reads history left by earlier steps, so it runs before any history is written.
DI_BODY void engram_hash_row(const EngramHashParams& p, int64_t row) {
  const int64_t position = p.positions[row];
  int64_t ids[kMaxNgram];
  bool dead = false;
  for (int i = 0; i < p.ngram; ++i) {
    int32_t id = p.pad;
    if (position >= i) {
      const bool in_step = row >= i && same_run(p.slots, p.positions, row, row - i);
      id = in_step ? engram_id(p, row - i) : engram_history(p, row)[(position - i) % p.ring_slots];
    }
    dead = dead || position < i || id == kDeadId;
    ids[i] = dead ? p.pad : id;
  }
  const int columns = (p.ngram - 1) * p.heads;
  for (int layer = 0; layer < p.num_layers; ++layer) {
    const int64_t* multiplier = p.multipliers + int64_t{layer} * p.ngram;
    int64_t* out = p.hash_rows + (int64_t{layer} * p.rows.capacity + row) * columns;
    int64_t hash = ids[0] * multiplier[0];
    for (int n = 1; n < p.ngram; ++n) {
      hash ^= ids[n] * multiplier[n];
      for (int h = 0; h < p.heads; ++h) {
        const int column = (n - 1) * p.heads + h;
        out[column] = hash % p.primes[int64_t{layer} * columns + column] + p.offsets[int64_t{layer} * columns + column];
      }
    }
  }
}

// Second pass.
DI_BODY void engram_history_row(const EngramHashParams& p, int64_t row) {
  if (p.write[row]) engram_history(p, row)[p.positions[row] % p.ring_slots] = engram_id(p, row);
}

DI_BODY void engram_gather_row(const EngramGatherParams& p, int64_t row) {
  for (int c = 0; c < p.columns; ++c) {
    const int64_t from = p.hash_rows[row * p.columns + c];
    Bf16* to = p.e + (row * p.columns + c) * p.dim;
    for (int b = 0; b < p.dim / kScaleBlock; ++b) {
      const float scale = e8m0_to_float(p.scales[from * (p.dim / kScaleBlock) + b]);
      const uint8_t* codes = p.codes + from * p.dim + b * kScaleBlock;
      for (int i = 0; i < kScaleBlock; ++i) to[b * kScaleBlock + i] = to_bf16(e4m3_to_float(codes[i]) * scale);
    }
  }
}

DI_BODY void engram_mix_row(const EngramMixParams& p, int64_t row) {
  const Bf16* keys = p.kvv + row * (p.streams + 1) * p.hidden;
  const Bf16* value = keys + int64_t{p.streams} * p.hidden;
  const bool image = p.is_image && p.is_image[row];
  const float share = 1.0f / sqrt32(static_cast<float>(p.hidden));
  for (int s = 0; s < p.streams; ++s) {
    Bf16* x = p.x + (row * p.streams + s) * p.hidden;
    const Bf16* key = keys + int64_t{s} * p.hidden;
    const Bf16* qw = p.q_weight + int64_t{s} * p.hidden;
    const Bf16* kw = p.k_weight + int64_t{s} * p.hidden;
    float dot = dot_of(
        p.hidden, [=](int d) { return to_float(x[d]) * (to_float(qw[d]) * to_float(kw[d])); },
        [=](int d) { return to_float(key[d]); });
    dot = dot * (rms_factor(x, p.hidden, p.eps) * rms_factor(key, p.hidden, p.eps)) * share;
    const float root = sqrt32(max32(abs32(dot), 1e-6f));
    const float gate = image ? 0.0f : sigmoid32(bits_float(float_bits(root) | (float_bits(dot) & 0x80000000u)));
    if (p.gates_out) p.gates_out[row * p.streams + s] = gate;
    for (int d = 0; d < p.hidden; ++d) x[d] = to_bf16(to_float(x[d]) + gate * to_float(value[d]));
  }
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
