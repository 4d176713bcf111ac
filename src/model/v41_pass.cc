#include "model/v41_pass.h"

#include <fmt/format.h>

#include "model/v41_rows.h"

namespace deepinfer {

// ---- small forms of the common operations -----------------------------------------------------------------------

void V41Pass::matmul(Rows rows, const Bf16* x, int64_t x_stride, const Matrix& w, void* y, OutputType type, float scale) const {
  ops_.matmul({.rows = rows,
               .x = x,
               .codes = nullptr,
               .scales = nullptr,
               .x_stride = x_stride,
               .w = w,
               .groups = 1,
               .bias = nullptr,
               .y = y,
               .y_type = type,
               .y_stride = w.n,
               .y_scale = scale});
}

void V41Pass::matmul8(Rows rows, const uint8_t* codes, const uint8_t* scales, const Matrix& w, Bf16* y) const {
  ops_.matmul({.rows = rows,
               .x = nullptr,
               .codes = codes,
               .scales = scales,
               .x_stride = 0,
               .w = w,
               .groups = 1,
               .bias = nullptr,
               .y = y,
               .y_type = OutputType::kBf16,
               .y_stride = w.n,
               .y_scale = 1.0f});
}

void V41Pass::quantize(Rows rows, const Bf16* x, int32_t width, uint8_t* codes, uint8_t* scales) const {
  ops_.quantize({.rows = rows, .x = x, .codes = codes, .scales = scales, .width = width});
}

void V41Pass::rms_norm(Rows rows, const Bf16* x, const Bf16* weight, int32_t width, Bf16* y) const {
  ops_.rms_norm({.rows = rows, .x = x, .weight = weight, .y = y, .width = width, .stride_x = width, .eps = s_.rms_eps});
}

void V41Pass::probe(const char* name, int32_t layer, void* data, int64_t row_bytes, const RowSet& set) const {
  if (w_.probe) w_.probe({name, layer, data, row_bytes, set.live, set.decoder});
}

// ---- the step ---------------------------------------------------------------------------------------------------

Status V41Pass::forward(const StepPlan& plan) {
  DI_CHECK_OK(upload_rows(plan));
  upload_images(plan);
  repeat(Walk::kForward, 0, [&] { walk_layers(); });
  return {};
}

void V41Pass::repeat(Walk walk, int32_t variant, FunctionRef<void()> fn) {
  // Probes read and replace values between operations; ranks meet on the host.
  if (w_.probe || w_.limits.ranks > 1) return fn();
  const bool forward = walk == Walk::kForward;
  const V41Workspace::RecordingKey key(static_cast<int32_t>(walk), variant, forward && split(), forward && w_.counts.images,
                                       forward && w_.counts.candidate_window, state_.states, state_.pages, state_.page_table,
                                       state_.draws);
  if (!w_.recordings.contains(key) && w_.recordings.size() >= V41Workspace::kMostRecordings) return fn();
  w_.device->replay(w_.recordings[key], fn);
}

void V41Pass::walk_layers() {
  if (state_.draws) ops_.take_draws({rows_of(w_.rows.encoder.count), state_.draws, w_.rows.tokens});
  embed();
  const RowSet encoder = encoder_rows(), decoder = decoder_rows();
  rope_tables(encoder, w_.rope_encoder);
  if (split()) rope_tables(decoder, w_.rope_decoder);
  if (!s_.engram_layers.empty()) {
    engram_hash(encoder);
    w_.device->aside([&] { engram_rows(encoder); });
  }

  const int32_t candidate = s_.candidate_source;
  for (int32_t l = 0; l < s_.layers; ++l) {
    if (candidate < 0 || l < candidate) {
      layer(l, encoder);
    } else if (l == candidate) {
      enter_layer(l, encoder);
      if (split()) candidate_split(l);
      RowSet at_candidate = decoder;
      at_candidate.spans = w_.rows.decoder.spans_candidate;
      layer(l, at_candidate);
    } else {
      layer(l, decoder);
    }
  }
  const RowSet& last = candidate < 0 ? encoder : decoder;
  probe("resid", s_.layers, last.x, int64_t{s_.streams} * s_.hidden * 2, last);
  probe("pre", s_.layers, last.pre, int64_t{s_.streams} * 4, last);
  head();
}

RowSet V41Pass::encoder_rows() const {
  return {rows_of(w_.rows.encoder.count),
          &w_.rows.encoder,
          w_.rows.encoder.spans,
          w_.x_encoder,
          w_.pre_encoder,
          w_.rope_encoder,
          w_.counts.encoder,
          false};
}

// Without a split the decoder rows are the encoder rows: same streams, but their own view of the window.
RowSet V41Pass::decoder_rows() const {
  return {rows_of(w_.rows.decoder.count),
          &w_.rows.decoder,
          w_.rows.decoder.spans,
          split() ? w_.x_decoder : w_.x_encoder,
          split() ? w_.pre_decoder : w_.pre_encoder,
          split() ? w_.rope_decoder : w_.rope_encoder,
          w_.counts.decoder,
          true};
}

Status V41Model::check(const StepPlan& plan, const V41Workspace& workspace) const {
  const V41Limits& limits = workspace.limits;
  if (plan.num_rows() > limits.max_rows || plan.num_logits() > limits.max_logits) {
    return internal_error(fmt::format("a step of {} rows and {} logit rows exceeds the workspace's {} and {}", plan.num_rows(),
                                      plan.num_logits(), limits.max_rows, limits.max_logits));
  }
  if (options_.shape.candidate_source < 0) {
    for (const SequenceRows& sequence : plan.sequences) {
      if (sequence.decoder_begin > sequence.begin) return unsupported("decoder replay needs a model with a candidate layer");
    }
  }
  return {};
}

Status V41Pass::upload_rows(const StepPlan& plan) {
  DI_CHECK_OK(m_.check(plan, w_));
  uint8_t* block = next_staging();
  w_.counts = build_step_arrays(plan, m_.layout_, s_.window, w_.rows_layout.at(block));
  upload_arrays(block, s_.experts_per_token);
  return {};
}

uint8_t* V41Pass::next_staging() {
  w_.next_staging = (w_.next_staging + 1) % V41Workspace::kStepsInFlight;
  return w_.staging[static_cast<size_t>(w_.next_staging)].data();
}

// The row arrays of a pass, and how many rows and pairs all ranks have together.
void V41Pass::upload_arrays(const uint8_t* block, int32_t top_k) {
  w_.device->upload(w_.rows.encoder.count, block, static_cast<size_t>(w_.rows_layout.bytes()));
  if (w_.limits.ranks == 1) return;
  auto& counts = w_.all_counts_staging[static_cast<size_t>(w_.next_staging)];
  counts = {w_.most_rows.encoder, w_.most_rows.decoder, w_.most_rows.encoder * top_k, w_.most_rows.decoder * top_k};
  for (int32_t& count : counts) count *= w_.limits.ranks;
  w_.device->upload(w_.all_counts, counts.data(), sizeof counts);
}

void V41Pass::upload_images(const StepPlan& plan) {
  int64_t row = 0;
  for (const ImageRows& image : plan.images) {
    w_.device->upload(w_.image_rows + row * s_.hidden, image.embeddings,
                      static_cast<size_t>(image.rows) * s_.hidden * sizeof(Bf16));
    row += image.rows;
  }
}

void V41Pass::embed() {
  ops_.embed({.rows = rows_of(w_.rows.encoder.count),
              .tokens = w_.rows.tokens,
              .image_row = w_.counts.images ? w_.rows.image_row : nullptr,
              .table = static_cast<const Bf16*>(m_.device_weights().embed.data),
              .image_rows = w_.image_rows,
              .x = w_.x_encoder,
              .pre = w_.pre_encoder,
              .hidden = s_.hidden,
              .streams = s_.streams});
}

void V41Pass::rope_tables(const RowSet& set, float* out) {
  const float* freq[2] = {m_.freq_window_, m_.freq_compressed_};
  for (int table = 0; table < 2; ++table) {
    ops_.rope_table({.rows = set.rows,
                     .positions = set.arrays->positions,
                     .freq = freq[table],
                     .cos_sin = out + int64_t{table} * w_.limits.max_rows * s_.rope_dim,
                     .half = s_.rope_dim / 2});
  }
}

// ---- one layer (model.md section 5) -------------------------------------------------------------------------------------

// What comes before a layer's first site; for the candidate layer on encoder rows, for all others on the layer's own.
void V41Pass::enter_layer(int32_t l, const RowSet& set) {
  const LayerPlan& plan = s_.plan[static_cast<size_t>(l)];
  probe("resid", l, set.x, int64_t{s_.streams} * s_.hidden * 2, set);
  probe("pre", l, set.pre, int64_t{s_.streams} * 4, set);
  if (plan.engram >= 0) engram(plan.engram, set);
}

void V41Pass::layer(int32_t l, const RowSet& set) {
  const LayerWeights& lw = m_.device_weights().layers[static_cast<size_t>(l)];
  const LayerPlan& plan = s_.plan[static_cast<size_t>(l)];
  const bool candidate = l == s_.candidate_source;
  if (!candidate) enter_layer(l, set);
  if (plan.tap >= 0) {
    ops_.tap({.rows = set.rows,
              .x = set.x,
              .tap = w_.taps,
              .stride = static_cast<int64_t>(s_.draft_targets.size()) * s_.hidden,
              .offset = int64_t{plan.tap} * s_.hidden,
              .hidden = s_.hidden,
              .streams = s_.streams});
  }
  site_input(set, lw.hc_attn, w_.pre, set.pre, lw.attn_norm);
  attention(l, set, !(candidate && split()));
  expand(set);
  site_input(set, lw.hc_ffn, set.pre, w_.pre, lw.ffn_norm);
  probe("ffn_in", l, w_.u, int64_t{s_.hidden} * 2, set);
  moe(lw, l, s_.experts, s_.experts_per_token, false, set);
  expand(set);
}

// Mixing weights of the site, then its input u: collapsed with `pre_in`, the weights of the site before. `pre_out` may be
// `pre_in` of the next site only, so it is written after `pre_in` was read.
void V41Pass::site_input(const RowSet& set, const HyperWeights& hyper, float* pre_out, const float* pre_in, const Bf16* norm) {
  ops_.collapse_norm({.rows = set.rows,
                      .x = set.x,
                      .pre = pre_in,
                      .weight = norm,
                      .u = w_.u,
                      .collapsed = nullptr,
                      .hidden = s_.hidden,
                      .streams = s_.streams,
                      .eps = s_.rms_eps});
  ops_.mix({.rows = set.rows,
            .x = set.x,
            .fn = hyper.fn,
            .base = hyper.base,
            .scale = hyper.scale,
            .pre = pre_out,
            .post = w_.post,
            .comb = w_.comb,
            .hidden = s_.hidden,
            .streams = s_.streams,
            .iterations = s_.sinkhorn_iters,
            .eps = s_.rms_eps,
            .hc_eps = s_.hc_eps});
}

void V41Pass::expand(const RowSet& set) {
  ops_.expand({.rows = set.rows,
               .y = w_.site_out,
               .post = w_.post,
               .comb = w_.comb,
               .x = set.x,
               .hidden = s_.hidden,
               .streams = s_.streams});
}

// The candidate layer with rows that stop here: window rows, compressor and index keys for all encoder rows, then the
// streams of the decoder rows move on alone.
void V41Pass::candidate_split(int32_t l) {
  const LayerWeights& lw = m_.device_weights().layers[static_cast<size_t>(l)];
  const RowSet encoder = encoder_rows();
  ops_.collapse_norm({.rows = encoder.rows,
                      .x = encoder.x,
                      .pre = encoder.pre,
                      .weight = lw.attn_norm,
                      .u = w_.u,
                      .collapsed = nullptr,
                      .hidden = s_.hidden,
                      .streams = s_.streams,
                      .eps = s_.rms_eps});
  // Far before the kept suffix nobody reads this layer's window.
  if (w_.counts.candidate_window) {
    quantize(encoder.rows, w_.u, s_.hidden, w_.u_codes, w_.u_scales);
    project_window(lw, l, encoder);
  }
  if (lw.compressor) global_entries(l, encoder);
  const Rows decoder = rows_of(w_.rows.decoder.count);
  ops_.gather_rows({.rows = decoder,
                    .index = w_.rows.decoder.source,
                    .src = w_.x_encoder,
                    .dst = w_.x_decoder,
                    .row_bytes = int64_t{s_.streams} * s_.hidden * 2});
  ops_.gather_rows({.rows = decoder,
                    .index = w_.rows.decoder.source,
                    .src = w_.pre_encoder,
                    .dst = w_.pre_decoder,
                    .row_bytes = int64_t{s_.streams} * 4});
}

// ---- Engram (section 10) ----------------------------------------------------------------------------------------

void V41Pass::engram_hash(const RowSet& set) {
  ops_.engram_hash({.rows = set.rows,
                    .tokens = w_.rows.tokens,
                    .is_image = set.arrays->is_image,
                    .slots = set.arrays->slots,
                    .positions = set.arrays->positions,
                    .write = set.arrays->ring_write,
                    .token_map = m_.token_map_,
                    .states = state_.states,
                    .state_bytes = m_.layout_.state_bytes,
                    .history_offset = m_.layout_.history_offset,
                    .ring_slots = m_.layout_.ring_slots,
                    .multipliers = m_.engram_multipliers_,
                    .primes = m_.engram_primes_,
                    .offsets = m_.engram_offsets_,
                    .hash_rows = w_.hash_rows,
                    .num_layers = static_cast<int32_t>(s_.engram_layers.size()),
                    .ngram = s_.engram_ngram,
                    .heads = s_.engram_heads,
                    .pad = m_.engram_pad_});
}

// The rows of all Engram layers: what they are follows from the step's tokens, so they come (from the host's memory, beside a
// GPU) while the layers before are computed.
void V41Pass::engram_rows(const RowSet& set) {
  const int64_t columns = s_.engram_columns(), width = columns * s_.engram_dim;
  for (size_t i = 0; i < s_.engram_layers.size(); ++i) {
    const EngramWeights& ew = m_.device_weights().engram[i];
    const int64_t first = static_cast<int64_t>(i) * w_.limits.max_rows;
    probe("engram_rows", static_cast<int32_t>(i), w_.hash_rows + first * columns, columns * 8, set);
    ops_.engram_gather({.rows = set.rows,
                        .hash_rows = w_.hash_rows + first * columns,
                        .codes = ew.codes,
                        .scales = ew.scales,
                        .e = w_.engram_rows,
                        .columns = static_cast<int32_t>(columns),
                        .dim = s_.engram_dim});
    quantize(set.rows, w_.engram_rows, static_cast<int32_t>(width), w_.engram_codes + first * width,
             w_.engram_scales + first * width / 32);
  }
}

void V41Pass::engram(int32_t index, const RowSet& set) {
  const EngramWeights& ew = m_.device_weights().engram[static_cast<size_t>(index)];
  const int64_t at = index * int64_t{w_.limits.max_rows} * s_.engram_columns() * s_.engram_dim;
  if (index == 0) w_.device->meet();
  matmul8(set.rows, w_.engram_codes + at, w_.engram_scales + at / 32, ew.wkv, w_.engram_kvv);
  ops_.engram_mix({.rows = set.rows,
                   .kvv = w_.engram_kvv,
                   .q_weight = ew.q_weight,
                   .k_weight = ew.k_weight,
                   .is_image = set.arrays->is_image,
                   .x = set.x,
                   .gates_out = w_.probe ? w_.engram_gates : nullptr,
                   .hidden = s_.hidden,
                   .streams = s_.streams,
                   .eps = s_.rms_eps});
  probe("engram_gate", s_.engram_layers[static_cast<size_t>(index)], w_.engram_gates, int64_t{s_.streams} * 4, set);
}

// ---- head -------------------------------------------------------------------------------------------------------

void V41Pass::head() {
  const RowSet set = decoder_rows();
  const Rows rows{w_.rows.logit_count, w_.limits.max_logits};
  ops_.gather_rows({.rows = rows,
                    .index = w_.rows.logit_source,
                    .src = set.x,
                    .dst = w_.z_source,
                    .row_bytes = int64_t{s_.streams} * s_.hidden * 2});
  ops_.gather_rows(
      {.rows = rows, .index = w_.rows.logit_source, .src = set.pre, .dst = w_.z_pre, .row_bytes = int64_t{s_.streams} * 4});
  ops_.collapse_norm({.rows = rows,
                      .x = w_.z_source,
                      .pre = w_.z_pre,
                      .weight = m_.device_weights().norm,
                      .u = w_.z,
                      .collapsed = nullptr,
                      .hidden = s_.hidden,
                      .streams = s_.streams,
                      .eps = s_.rms_eps});
  matmul(rows, w_.z, s_.hidden, m_.device_weights().head, w_.logit_values, OutputType::kF32);
}

}  // namespace deepinfer
