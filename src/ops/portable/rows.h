// ops/portable/rows.h - embed, gather, norms and residual streams: one function per row.
#pragma once

#include "ops/portable/dot.h"
#include "ops/portable/quant.h"

namespace deepinfer {
inline namespace DI_ISA_NS {

inline constexpr int kMaxStreams = 8;

// A row without a finite logit draws token -1; its successors read row 0 and are thrown away by the engine.
DI_BODY int64_t token_row(int32_t token) { return token < 0 ? 0 : token; }

DI_BODY void take_draw(const TakeDrawsParams& p, int64_t row) {
  if (p.tokens[row] < 0) p.tokens[row] = p.draws[-1 - p.tokens[row]].token;
}

// Channels [begin, end) of one row in all streams; who has channel 0 sets `pre`.
DI_BODY void embed_range(const EmbedParams& p, int64_t row, int begin, int end) {
  const int image = p.image_row ? p.image_row[row] : -1;
  const Bf16* from = image >= 0 ? p.image_rows + int64_t{image} * p.hidden : p.table + token_row(p.tokens[row]) * p.hidden;
  for (int s = 0; s < p.streams; ++s) {
    Bf16* to = p.x + (row * p.streams + s) * p.hidden;
    for (int d = begin; d < end; ++d) to[d] = from[d];
    if (begin == 0) p.pre[row * p.streams + s] = s == 0 ? 1.0f : 0.0f;
  }
}

// Bytes [begin, end) of one row.
DI_BODY void gather_range(const GatherRowsParams& p, int64_t row, int64_t begin, int64_t end) {
  const int64_t index = p.index[row];
  const uint8_t* from = static_cast<const uint8_t*>(p.src) + index * p.row_bytes;
  uint8_t* to = static_cast<uint8_t*>(p.dst) + row * p.row_bytes;
  for (int64_t i = begin; i < end; ++i) to[i] = index < 0 ? uint8_t{0} : from[i];
}

// rsqrt(mean(x^2) + eps), the squares added in DOT order.
template <class Dot = SerialDot>
DI_BODY float rms_factor(const Bf16* x, int width, float eps, Dot dot = {}) {
  const auto value = [=](int i) { return to_float(x[i]); };
  return rsqrt32(dot(width, value, value) / static_cast<float>(width) + eps);
}

DI_BODY float rms_apply(Bf16 weight, float x, float factor) { return round_bf16(to_float(weight) * (x * factor)); }

DI_BODY void rms_norm_at(const RmsNormParams& p, int64_t row, int i, float factor) {
  p.y[row * p.width + i] = to_bf16(to_float(p.weight[i]) * (to_float(p.x[row * p.stride_x + i]) * factor));
}

DI_BODY void rms_norm_row(const RmsNormParams& p, int64_t row) {
  const float factor = rms_factor(p.x + row * p.stride_x, p.width, p.eps);
  for (int i = 0; i < p.width; ++i) rms_norm_at(p, row, i, factor);
}

// DOT of projection row `output` with the row's streams; not yet normalised.
template <class Dot = SerialDot>
DI_BODY float mix_dot(const MixParams& p, int64_t row, int output, Dot dot = {}) {
  const int k = p.streams * p.hidden;
  const Bf16* x = p.x + row * k;
  const float* fn = p.fn + int64_t{output} * k;
  return dot(
      k, [=](int i) { return fn[i]; }, [=](int i) { return to_float(x[i]); });
}

// comb: softmax over output streams, then alternating column and row normalisation (model.md section 5), in pieces that do
// not depend on each other.
DI_BODY void sinkhorn_start(float* line, int streams, float hc_eps) {
  float top = line[0], sum = 0.0f;
  for (int k = 1; k < streams; ++k) top = max32(top, line[k]);
  for (int k = 0; k < streams; ++k) sum += line[k] = exp32(line[k] - top);
  for (int k = 0; k < streams; ++k) line[k] = line[k] / sum + hc_eps;
}

// A row (step 1) or a column (step = streams).
DI_BODY void sinkhorn_line(float* line, int step, int streams, float hc_eps) {
  float sum = 0.0f;
  for (int k = 0; k < streams; ++k) sum += line[k * step];
  for (int k = 0; k < streams; ++k) line[k * step] /= sum + hc_eps;
}

DI_BODY void sinkhorn(float* a, int streams, int iterations, float hc_eps) {
  for (int j = 0; j < streams; ++j) sinkhorn_start(a + j * streams, streams, hc_eps);
  for (int i = 0; i < iterations; ++i) {
    for (int j = 0; i > 0 && j < streams; ++j) sinkhorn_line(a + j * streams, 1, streams, hc_eps);
    for (int k = 0; k < streams; ++k) sinkhorn_line(a + k, streams, streams, hc_eps);
  }
}

DI_BODY void mix_gates(const MixParams& p, int64_t row, int i, float pre, float post, float factor) {
  p.pre[row * p.streams + i] = sigmoid32(pre * factor * p.scale[0] + p.base[i]) + p.hc_eps;
  p.post[row * p.streams + i] = 2.0f * sigmoid32(post * factor * p.scale[1] + p.base[p.streams + i]);
}

DI_BODY float mix_comb(const MixParams& p, int i, float dot, float factor) {
  return dot * factor * p.scale[2] + p.base[2 * p.streams + i];
}

// From t = dots * factor to pre, post, comb.
DI_BODY void mix_finish(const MixParams& p, int64_t row, const float* dots, float factor) {
  const int s = p.streams;
  float comb[kMaxStreams * kMaxStreams];
  for (int i = 0; i < s; ++i) mix_gates(p, row, i, dots[i], dots[s + i], factor);
  for (int i = 0; i < s * s; ++i) comb[i] = mix_comb(p, i, dots[2 * s + i], factor);
  sinkhorn(comb, s, p.iterations, p.hc_eps);
  for (int i = 0; i < s * s; ++i) p.comb[row * s * s + i] = comb[i];
}

DI_BODY void mix_row(const MixParams& p, int64_t row) {
  const int s = p.streams;
  float dots[2 * kMaxStreams + kMaxStreams * kMaxStreams];
  for (int i = 0; i < 2 * s + s * s; ++i) dots[i] = mix_dot(p, row, i);
  mix_finish(p, row, dots, rms_factor(p.x + row * s * p.hidden, s * p.hidden, p.eps));
}

// sum_s pre[s] * x[s], s ascending, rounded: channels [begin, end).
DI_BODY void collapse_range(const Bf16* x, const float* pre, int hidden, int streams, Bf16* out, int begin, int end) {
  for_chunks(begin, end, [=](int d, auto width) {
    float sum[width.value];
    for (int i = 0; i < width.value; ++i) sum[i] = pre[0] * to_float(x[d + i]);
    for (int s = 1; s < streams; ++s) {
      for (int i = 0; i < width.value; ++i) sum[i] += pre[s] * to_float(x[int64_t{s} * hidden + d + i]);
    }
    for (int i = 0; i < width.value; ++i) out[d + i] = to_bf16(sum[i]);
  });
}

// First pass of a row: u holds what is not normed yet.
DI_BODY void collapse_to_u(const CollapseNormParams& p, int64_t row, int begin, int end) {
  Bf16* u = p.u + row * p.hidden;
  collapse_range(p.x + row * p.streams * p.hidden, p.pre + row * p.streams, p.hidden, p.streams, u, begin, end);
  if (!p.collapsed) return;
  for (int d = begin; d < end; ++d) p.collapsed[row * p.hidden + d] = u[d];
}

DI_BODY void norm_u_at(const CollapseNormParams& p, int64_t row, int d, float factor) {
  Bf16& u = p.u[row * p.hidden + d];
  u = to_bf16(to_float(p.weight[d]) * (to_float(u) * factor));
}

DI_BODY void collapse_norm_row(const CollapseNormParams& p, int64_t row) {
  collapse_to_u(p, row, 0, p.hidden);
  const float factor = rms_factor(p.u + row * p.hidden, p.hidden, p.eps);
  for (int d = 0; d < p.hidden; ++d) norm_u_at(p, row, d, factor);
}

template <int S, class Chunk>
DI_BODY void expand_chunk(const ExpandParams& p, int64_t row, int d, Chunk width) {
  const Bf16* y = p.y + row * p.hidden + d;
  const float* comb = p.comb + row * S * S;
  Bf16* x = p.x + row * S * p.hidden + d;
  float in[S][Chunk::value];
  for (int j = 0; j < S; ++j) {
    for (int i = 0; i < width.value; ++i) in[j][i] = to_float(x[int64_t{j} * p.hidden + i]);
  }
  for (int k = 0; k < S; ++k) {
    float sum[Chunk::value];
    for (int i = 0; i < width.value; ++i) sum[i] = comb[k] * in[0][i];
    for (int j = 1; j < S; ++j) {
      for (int i = 0; i < width.value; ++i) sum[i] += comb[j * S + k] * in[j][i];
    }
    const float post = p.post[row * S + k];
    for (int i = 0; i < width.value; ++i) x[int64_t{k} * p.hidden + i] = to_bf16(post * to_float(y[i]) + sum[i]);
  }
}

// Channels [begin, end) of one row. Streams are 1, 2 or 4.
DI_BODY void expand_range(const ExpandParams& p, int64_t row, int begin, int end) {
  for_chunks(begin, end, [&](int d, auto width) {
    if (p.streams == 4)
      expand_chunk<4>(p, row, d, width);
    else if (p.streams == 2)
      expand_chunk<2>(p, row, d, width);
    else
      expand_chunk<1>(p, row, d, width);
  });
}

DI_BODY void tap_range(const TapParams& p, int64_t row, int begin, int end) {
  const Bf16* x = p.x + row * p.streams * p.hidden;
  Bf16* tap = p.tap + row * p.stride + p.offset;
  const float share = 1.0f / static_cast<float>(p.streams);
  for_chunks(begin, end, [=](int d, auto width) {
    float sum[width.value];
    for (int i = 0; i < width.value; ++i) sum[i] = to_float(x[d + i]);
    for (int s = 1; s < p.streams; ++s) {
      for (int i = 0; i < width.value; ++i) sum[i] += to_float(x[int64_t{s} * p.hidden + d + i]);
    }
    for (int i = 0; i < width.value; ++i) tap[d + i] = to_bf16(sum[i] * share);
  });
}

}  // namespace DI_ISA_NS
}  // namespace deepinfer
