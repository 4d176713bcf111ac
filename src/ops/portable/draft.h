// ops/portable/draft.h - Markov addition and confidence logit of the draft (model.md section 11).
#pragma once

#include "ops/portable/rows.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

template <class Dot = SerialDot>
DI_BODY float markov_logit(const MarkovParams& p, int64_t row, int64_t v, Dot dot = {}) {
  const Bf16* embed = p.embed + token_row(p.prev[row * p.prev_stride]) * p.rank;
  const Bf16* head = p.head + v * p.rank;
  const float sum = dot(
      p.rank, [=](int i) { return to_float(embed[i]); }, [=](int i) { return to_float(head[i]); });
  return p.base[row * p.base_stride + v] + sum;
}

DI_BODY void markov_range(const MarkovParams& p, int64_t row, int64_t begin, int64_t end) {
  for (int64_t v = begin; v < end; ++v) p.logits[row * p.logits_stride + v] = markov_logit(p, row, v);
}

template <class Dot = SerialDot>
DI_BODY float confidence_of(const ConfidenceParams& p, int64_t row, Dot dot = {}) {
  const Bf16* x = p.x + row * p.x_stride;
  const Bf16* embed = p.embed + token_row(p.prev[row * p.prev_stride]) * p.rank - p.hidden;
  const Bf16* proj = p.proj;
  const int hidden = p.hidden;
  return dot(
      p.hidden + p.rank, [=](int i) { return to_float(i < hidden ? x[i] : embed[i]); }, [=](int i) { return to_float(proj[i]); });
}

DI_BODY void confidence_row(const ConfidenceParams& p, int64_t row) { p.conf[row * p.conf_stride] = confidence_of(p, row); }

}  // namespace DI_ISA_NS
}  // namespace deepinfer
