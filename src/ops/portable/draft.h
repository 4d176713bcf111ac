// ops/portable/draft.h - Markov addition and confidence logit of the draft (model.md section 11).
#pragma once

#include "ops/portable/rows.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

DI_BODY void markov_range(const MarkovParams& p, int64_t row, int64_t begin, int64_t end) {
  const Bf16* embed = p.embed + token_row(p.prev[row * p.prev_stride]) * p.rank;
  for (int64_t v = begin; v < end; ++v) {
    const Bf16* head = p.head + v * p.rank;
    const float dot = dot_of(
        p.rank, [=](int i) { return to_float(embed[i]); }, [=](int i) { return to_float(head[i]); });
    p.logits[row * p.logits_stride + v] = p.base[row * p.base_stride + v] + dot;
  }
}

DI_BODY void confidence_row(const ConfidenceParams& p, int64_t row) {
  const Bf16* x = p.x + row * p.x_stride;
  const Bf16* embed = p.embed + token_row(p.prev[row * p.prev_stride]) * p.rank - p.hidden;
  p.conf[row * p.conf_stride] = dot_of(
      p.hidden + p.rank, [=](int i) { return to_float(i < p.hidden ? x[i] : embed[i]); },
      [=](int i) { return to_float(p.proj[i]); });
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
