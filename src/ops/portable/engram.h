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

DI_BODY void engram_gather_block(const EngramGatherParams& p, int64_t row, int column, int b) {
  const int64_t from = p.hash_rows[row * p.columns + column];
  Bf16* to = p.e + (row * p.columns + column) * p.dim + b * kScaleBlock;
  const float scale = e8m0_to_float(p.scales[from * (p.dim / kScaleBlock) + b]);
  const uint8_t* codes = p.codes + from * p.dim + b * kScaleBlock;
  for (int i = 0; i < kScaleBlock; ++i) to[i] = to_bf16(e4m3_to_float(codes[i]) * scale);
}

DI_BODY void engram_gather_row(const EngramGatherParams& p, int64_t row) {
  for (int c = 0; c < p.columns; ++c) {
    for (int b = 0; b < p.dim / kScaleBlock; ++b) engram_gather_block(p, row, c, b);
  }
}

template <class Dot = SerialDot>
DI_BODY float engram_gate(const EngramMixParams& p, int64_t row, int s, Dot dot = {}) {
  const Bf16* x = p.x + (row * p.streams + s) * p.hidden;
  const Bf16* key = p.kvv + (row * (p.streams + 1) + s) * p.hidden;
  const Bf16* qw = p.q_weight + int64_t{s} * p.hidden;
  const Bf16* kw = p.k_weight + int64_t{s} * p.hidden;
  float sum = dot(
      p.hidden, [=](int d) { return to_float(x[d]) * (to_float(qw[d]) * to_float(kw[d])); },
      [=](int d) { return to_float(key[d]); });
  const float share = 1.0f / sqrt32(static_cast<float>(p.hidden));
  sum = sum * (rms_factor(x, p.hidden, p.eps, dot) * rms_factor(key, p.hidden, p.eps, dot)) * share;
  const float root = sqrt32(max32(abs32(sum), 1e-6f));
  if (p.is_image && p.is_image[row]) return 0.0f;
  return sigmoid32(bits_float(float_bits(root) | (float_bits(sum) & 0x80000000u)));
}

DI_BODY void engram_add_at(const EngramMixParams& p, int64_t row, int s, int d, float gate) {
  const Bf16 value = p.kvv[(row * (p.streams + 1) + p.streams) * p.hidden + d];
  Bf16& x = p.x[(row * p.streams + s) * p.hidden + d];
  x = to_bf16(to_float(x) + gate * to_float(value));
}

DI_BODY void engram_mix_row(const EngramMixParams& p, int64_t row) {
  for (int s = 0; s < p.streams; ++s) {
    const float gate = engram_gate(p, row, s);
    if (p.gates_out) p.gates_out[row * p.streams + s] = gate;
    for (int d = 0; d < p.hidden; ++d) engram_add_at(p, row, s, d, gate);
  }
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
