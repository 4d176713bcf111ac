// ops/portable/experts.h - routing, grouping, the gated unit, combination (model.md section 9).
#pragma once

#include "ops/portable/rows.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

DI_BODY float expert_score(float logit) { return sqrt32(softplus32(logit)); }

// From the scores of the chosen experts, ascending, to their weights.
DI_BODY void scale_expert_weights(const RouteParams& p, float* weights) {
  float sum = 0.0f;
  for (int k = 0; k < p.top_k; ++k) sum += weights[k];
  for (int k = 0; k < p.top_k; ++k) weights[k] = weights[k] / (sum + 1e-20f) * p.scaling;
}

// The chosen experts of a row by growing id, and their weights.
DI_BODY void write_route(const RouteParams& p, int64_t row, const bool* taken, const float* score) {
  int32_t* ids = p.ids + row * p.top_k;
  float* weights = p.weights + row * p.top_k;
  for (int e = 0, k = 0; e < p.experts; ++e) {
    if (!taken[e]) continue;
    ids[k] = e;
    weights[k++] = score[e];
  }
  scale_expert_weights(p, weights);
}

DI_BODY void route_row(const RouteParams& p, int64_t row) {
  const float* logits = p.logits + row * p.experts;
  const float* bias = p.is_image && p.is_image[row] ? p.bias_image : p.bias;
  float score[kMaxExperts], key[kMaxExperts];
  bool taken[kMaxExperts] = {};
  for (int e = 0; e < p.experts; ++e) score[e] = expert_score(logits[e]);
  for (int e = 0; e < p.experts; ++e) key[e] = score[e] + bias[e];
  for (int k = 0; k < p.top_k; ++k) {
    int best = -1;
    for (int e = 0; e < p.experts; ++e) {
      if (!taken[e] && (best < 0 || key[e] > key[best])) best = e;
    }
    taken[best] = true;
  }
  write_route(p, row, taken, score);
}

DI_BODY void group_pairs_all(const GroupPairsParams& p, int64_t num_rows) {
  const int64_t pairs = num_rows * p.top_k;
  for (int e = 0; e <= p.num_experts; ++e) p.offsets[e] = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const int e = p.ids[i] - p.first_expert;
    if (e >= 0 && e < p.num_experts) ++p.offsets[e + 1];
  }
  for (int e = 0; e < p.num_experts; ++e) p.offsets[e + 1] += p.offsets[e];
  // offsets[e] serves as the cursor of expert e and ends as the begin of e + 1; shifted back below.
  for (int64_t i = 0; i < pairs; ++i) {
    const int e = p.ids[i] - p.first_expert;
    p.pair_of[i] = -1;
    if (e < 0 || e >= p.num_experts) continue;
    const int32_t at = p.offsets[e]++;
    p.pair_row[at] = static_cast<int32_t>(i / p.top_k);
    p.pair_slot[at] = static_cast<int32_t>(i % p.top_k);
    p.pair_of[i] = at;
  }
  for (int e = p.num_experts; e > 0; --e) p.offsets[e] = p.offsets[e - 1];
  p.offsets[0] = 0;
  *p.num_pairs = p.offsets[p.num_experts];
}

DI_BODY void expert_home_row(const ExpertHomeParams& p, int64_t row) {
  for (int64_t i = row * p.top_k; i < (row + 1) * p.top_k; ++i) {
    p.home[i] = static_cast<int32_t>(p.ids[i] / p.experts_per_rank * p.stride + i);
  }
}

DI_BODY float gated_unit(float gate, float up, float weight, float limit) {
  return round_bf16(weight * (silu32(min32(gate, limit)) * clamp32(up, limit)));
}

DI_BODY void swiglu_quantize_block(const SwigluQuantizeParams& p, int64_t row, int b) {
  const float weight = p.weights ? p.weights[int64_t{p.pair_row[row]} * p.top_k + p.pair_slot[row]] : 1.0f;
  const int64_t at = row * p.width + b * kScaleBlock;
  float h[kScaleBlock];
  for (int i = 0; i < kScaleBlock; ++i) h[i] = gated_unit(to_float(p.gate[at + i]), to_float(p.up[at + i]), weight, p.limit);
  p.scales[at / kScaleBlock] = quantize_q8(h, p.codes + at);
}

DI_BODY void swiglu_quantize_row(const SwigluQuantizeParams& p, int64_t row) {
  for (int b = 0; b < p.width / kScaleBlock; ++b) swiglu_quantize_block(p, row, b);
}

// Channels [begin, end) of one row.
DI_BODY void combine_range(const CombineParams& p, int64_t row, int begin, int end) {
  const int32_t* pair_of = p.pair_of + row * p.top_k;
  for_chunks(begin, end, [=](int d, auto width) {
    float sum[width.value] = {};
    for (int k = 0; k < p.top_k; ++k) {
      if (pair_of[k] < 0) continue;
      const Bf16* y = p.y + int64_t{pair_of[k]} * p.width + d;
      for (int i = 0; i < width.value; ++i) sum[i] += to_float(y[i]);
    }
    const int64_t at = row * p.width + d;
    for (int i = 0; i < width.value; ++i) p.out[at + i] = to_bf16(sum[i] + to_float(p.shared[at + i]));
  });
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
