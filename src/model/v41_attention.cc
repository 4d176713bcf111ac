// Attention of one layer (model.md sections 6 to 8): projections, window rows, compressed entries, selection, attention,
// grouped output projection.
#include <cmath>

#include "model/v41_pass.h"

namespace deepinfer {

const float* V41Pass::rope_of(const RowSet& set, int32_t ratio) const {
  return set.rope + (ratio > 0 ? int64_t{w_.limits.max_rows} * s_.rope_dim : 0);
}

PageView V41Pass::page_view(int32_t source_layer) const {
  const int32_t index = m_.layout_.section_of(source_layer);
  return {.pages = state_.pages,
          .page_bytes = m_.layout_.page_bytes,
          .table = state_.page_table,
          .table_stride = state_.table_stride,
          .section = m_.layout_.sections[static_cast<size_t>(index)],
          .head_dim = s_.head_dim,
          .index_dim = s_.index_dim};
}

// `own_window_rows`: false when the candidate layer's window rows and entries were already made for all encoder rows.
void V41Pass::attention(int32_t l, const RowSet& set, bool own_window_rows) {
  const LayerWeights& lw = m_.device_weights().layers[static_cast<size_t>(l)];
  const LayerPlan& plan = s_.plan[static_cast<size_t>(l)];
  quantize(set.rows, w_.u, s_.hidden, w_.u_codes, w_.u_scales);
  if (own_window_rows) {
    if (lw.compressor) global_entries(l, set);
    matmul8(set.rows, w_.u_codes, w_.u_scales, lw.wkv, w_.kv);
    window_rows(lw, l, set, w_.kv);
  }
  matmul8(set.rows, w_.u_codes, w_.u_scales, lw.wq_a, w_.qr_raw);
  rms_norm(set.rows, w_.qr_raw, lw.q_norm, s_.q_rank, w_.qr);
  quantize(set.rows, w_.qr, s_.q_rank, w_.qr_codes, w_.qr_scales);
  probe("qr", l, w_.qr, int64_t{s_.q_rank} * 2, set);
  if (lw.indexer) select(l, set);
  attend(lw, l, set, plan.ratio > 0 ? &plan : nullptr);
  if (own_window_rows) {
    ring_write(l, set);
  } else if (w_.counts.candidate_window) {
    ring_write(l, encoder_rows());
  }
}

void V41Pass::ring_write(int32_t ring, const RowSet& set) {
  ops_.ring_write({.rows = set.rows,
                   .codes = w_.kv_codes,
                   .scales = w_.kv_scales,
                   .slots = set.arrays->slots,
                   .positions = set.arrays->positions,
                   .write = set.arrays->ring_write,
                   .states = state_.states,
                   .state_bytes = m_.layout_.state_bytes,
                   .ring_offset = m_.layout_.ring_offset(ring),
                   .ring_codes_bytes = m_.layout_.ring_codes_bytes,
                   .ring_slots = m_.layout_.ring_slots,
                   .head_dim = s_.head_dim});
}

// Window rows of the step into kv_codes/kv_scales. They go to the ring only after attention has read the old slots.
void V41Pass::window_rows(const LayerWeights& lw, int32_t ring, const RowSet& set, const Bf16* input_kv) {
  const int32_t ratio = ring < s_.layers ? s_.plan[static_cast<size_t>(ring)].ratio : 0;
  ops_.window_kv({.rows = set.rows,
                  .kv = input_kv,
                  .weight = lw.kv_norm,
                  .cos_sin = rope_of(set, ratio),
                  .codes = w_.kv_codes,
                  .scales = w_.kv_scales,
                  .head_dim = s_.head_dim,
                  .rope_dim = s_.rope_dim,
                  .eps = s_.rms_eps});
  probe("window_codes", ring, w_.kv_codes, s_.head_dim, set);
  probe("window_scales", ring, w_.kv_scales, s_.head_dim / 32, set);
}

void V41Pass::project_window(const LayerWeights& lw, int32_t ring, const RowSet& set) {
  matmul8(set.rows, w_.u_codes, w_.u_scales, lw.wkv, w_.kv);
  window_rows(lw, ring, set, w_.kv);
}

// Compressed entries and index keys of the rows that complete one, written to their pages (section 7).
void V41Pass::global_entries(int32_t l, const RowSet& set) {
  const LayerWeights& lw = m_.device_weights().layers[static_cast<size_t>(l)];
  const CompressorWeights& c = *lw.compressor;
  const LayerPlan& plan = s_.plan[static_cast<size_t>(l)];
  if (plan.ratio == 2) {
    int32_t tail = 0;
    for (const int32_t source : s_.kv_sources) {
      if (source == l) break;
      tail += s_.plan[static_cast<size_t>(source)].ratio == 2;
    }
    matmul(set.rows, w_.u, s_.hidden, c.wkv, w_.value, OutputType::kF32);
    matmul(set.rows, w_.u, s_.hidden, c.wgate, w_.gate, OutputType::kF32);
    ops_.pool_pairs({.rows = set.rows,
                     .value = w_.value,
                     .gate = w_.gate,
                     .slots = set.arrays->slots,
                     .positions = set.arrays->positions,
                     .states = state_.states,
                     .state_bytes = m_.layout_.state_bytes,
                     .tail_offset = m_.layout_.tail_offset(tail),
                     .latent = w_.latent,
                     .head_dim = s_.head_dim});
  } else {
    matmul(set.rows, w_.u, s_.hidden, c.wkv, w_.latent, OutputType::kBf16);
  }
  rms_norm(set.rows, w_.latent, c.norm, s_.head_dim, w_.latent_norm);
  matmul(set.rows, w_.latent_norm, s_.head_dim, c.wk, w_.key, OutputType::kBf16);
  ops_.write_entries({.rows = set.rows,
                      .latent = w_.latent_norm,
                      .key = w_.key,
                      .key_norm = c.k_norm,
                      .freq = m_.freq_compressed_,
                      .slots = set.arrays->slots,
                      .positions = set.arrays->positions,
                      .write = set.arrays->entry_write,
                      .view = page_view(l),
                      .rope_dim = s_.rope_dim,
                      .eps = s_.rms_eps});
}

// Index query and top-k (section 8).
void V41Pass::select(int32_t l, const RowSet& set) {
  const LayerWeights& lw = m_.device_weights().layers[static_cast<size_t>(l)];
  const LayerPlan& plan = s_.plan[static_cast<size_t>(l)];
  matmul8(set.rows, w_.qr_codes, w_.qr_scales, lw.indexer->wq_b, w_.index_q);
  ops_.index_query({.rows = set.rows,
                    .q = w_.index_q,
                    .cos_sin = rope_of(set, plan.ratio),
                    .heads = s_.index_heads,
                    .dim = s_.index_dim,
                    .rope_dim = s_.rope_dim});
  const float scale = static_cast<float>(1.0 / std::sqrt(double{1} * s_.index_dim) / std::sqrt(double{1} * s_.index_heads));
  matmul(set.rows, w_.u, s_.hidden, lw.indexer->weights_proj, w_.index_w, OutputType::kBf16, scale);
  probe("index_q", l, w_.index_q, int64_t{s_.index_heads} * s_.index_dim * 2, set);
  probe("index_w", l, w_.index_w, int64_t{s_.index_heads} * 2, set);
  const SelectMode mode = s_.candidate_source < 0 || l < s_.candidate_source ? SelectMode::kAll
                          : l == s_.candidate_source                         ? SelectMode::kPublishCandidates
                                                                             : SelectMode::kWithinCandidates;
  ops_.select({.rows = set.rows,
               .q = w_.index_q,
               .w = w_.index_w,
               .slots = set.arrays->slots,
               .positions = set.arrays->positions,
               .view = page_view(plan.kv_source),
               .mode = mode,
               .selected = w_.selected,
               .candidates = w_.candidates,
               .score_scratch = w_.score_scratch,
               .scratch_rows = w_.device->parallelism(),
               .max_entries = w_.max_entries,
               .scores_out = w_.scores_out,
               .heads = s_.index_heads,
               .top_k = s_.index_topk,
               .candidate_blocks = s_.candidate_blocks,
               .candidate_block = s_.candidate_block});
  probe("sel", l, w_.selected, int64_t{s_.index_topk} * 4, set);
  if (mode == SelectMode::kPublishCandidates) probe("candidates", l, w_.candidates, int64_t{s_.candidate_blocks} * 4, set);
  if (w_.scores_out) probe("index_score", l, w_.scores_out, w_.max_entries * 4, set);
}

// Query heads, softmax over window and selected rows, rotation back, output. `plan` null = window only.
void V41Pass::attend(const LayerWeights& lw, int32_t ring, const RowSet& set, const LayerPlan* plan) {
  const float* rope = rope_of(set, plan ? plan->ratio : 0);
  matmul8(set.rows, w_.qr_codes, w_.qr_scales, lw.wq_b, w_.q);
  ops_.rope({.rows = set.rows,
             .x = w_.q,
             .cos_sin = rope,
             .heads = s_.heads,
             .head_dim = s_.head_dim,
             .rope_dim = s_.rope_dim,
             .inverse = 0});
  probe("q", ring, w_.q, int64_t{s_.heads} * s_.head_dim * 2, set);
  ops_.attention({.rows = set.rows,
                  .q = w_.q,
                  .spans = set.spans,
                  .slots = set.arrays->slots,
                  .batch_codes = w_.kv_codes,
                  .batch_scales = w_.kv_scales,
                  .states = state_.states,
                  .state_bytes = m_.layout_.state_bytes,
                  .ring_offset = m_.layout_.ring_offset(ring),
                  .ring_codes_bytes = m_.layout_.ring_codes_bytes,
                  .ring_slots = m_.layout_.ring_slots,
                  .selected = plan ? w_.selected : nullptr,
                  .top_k = plan ? s_.index_topk : 0,
                  .view = plan ? page_view(plan->kv_source) : PageView{},
                  .sink = lw.sink,
                  .o = w_.o,
                  .heads = s_.heads,
                  .head_dim = s_.head_dim});
  probe("attn_o", ring, w_.o, int64_t{s_.heads} * s_.head_dim * 2, set);
  ops_.rope({.rows = set.rows,
             .x = w_.o,
             .cos_sin = rope,
             .heads = s_.heads,
             .head_dim = s_.head_dim,
             .rope_dim = s_.rope_dim,
             .inverse = 1});
  output_projection(lw, set);
}

void V41Pass::output_projection(const LayerWeights& lw, const RowSet& set) {
  const int32_t wide = s_.o_groups * s_.o_rank;
  ops_.matmul({.rows = set.rows,
               .x = w_.o,
               .codes = nullptr,
               .scales = nullptr,
               .x_stride = int64_t{s_.heads} * s_.head_dim,
               .w = lw.wo_a,
               .groups = s_.o_groups,
               .bias = nullptr,
               .y = w_.wo,
               .y_type = OutputType::kBf16,
               .y_stride = wide,
               .y_scale = 1.0f});
  quantize(set.rows, w_.wo, wide, w_.wo_codes, w_.wo_scales);
  matmul8(set.rows, w_.wo_codes, w_.wo_scales, lw.wo_b, w_.site_out);
}

}  // namespace deepinfer
