// The DSpark draft (model.md section 11): draft rings from the taps of committed tokens, and the pass over one block.
#include <algorithm>

#include <fmt/format.h>

#include "model/v41_pass.h"

namespace deepinfer {

Status V41Pass::draft_context() {
  if (w_.limits.max_drafts == 0) return internal_error("the workspace was made without room for drafts");
  repeat(Walk::kDraftContext, split(), [&] { walk_draft_context(); });
  return {};
}

void V41Pass::walk_draft_context() {
  const RowSet set = decoder_rows();
  const DraftExtra& extra = *m_.device_weights().draft_extra;
  const int32_t tap_width = static_cast<int32_t>(s_.draft_targets.size()) * s_.hidden;
  probe("tap", 0, w_.taps, int64_t{tap_width} * 2, set);
  quantize(set.rows, w_.taps, tap_width, w_.taps_codes, w_.taps_scales);
  matmul8(set.rows, w_.taps_codes, w_.taps_scales, extra.main_proj, w_.main_raw);
  rms_norm(set.rows, w_.main_raw, extra.main_norm, s_.hidden, w_.main_x);
  quantize(set.rows, w_.main_x, s_.hidden, w_.u_codes, w_.u_scales);
  for (int32_t stage = 0; stage < s_.draft_stages; ++stage) {
    const int32_t ring = s_.layers + stage;
    project_window(m_.device_weights().draft[static_cast<size_t>(stage)], ring, set);
    ring_write(ring, set);
  }
}

Status V41Pass::draft(std::span<const DraftSequence> sequences, std::span<const SampleRow> settings) {
  if (static_cast<int32_t>(sequences.size()) > w_.limits.max_drafts) {
    return internal_error(
        fmt::format("a draft pass of {} sequences exceeds the workspace's {}", sequences.size(), w_.limits.max_drafts));
  }
  DI_CHECK_OK(upload_draft_rows(sequences, settings));
  const auto count = static_cast<int32_t>(sequences.size());
  repeat(Walk::kDraft, count, [&] {
    embed();
    const RowSet set = encoder_rows();
    rope_tables(set, w_.rope_encoder);
    for (int32_t stage = 0; stage < s_.draft_stages; ++stage) draft_stage(stage, set);
    draft_heads(count, set);
  });
  return {};
}

// Rows [y, NOISE x (G-1)] at positions p+1..p+G, each seeing the ring up to p and the whole block.
Status V41Pass::upload_draft_rows(std::span<const DraftSequence> sequences, std::span<const SampleRow> settings) {
  uint8_t* block = next_staging();
  const StepArrays host = w_.rows_layout.at(block);
  const int32_t width = s_.draft_block;
  int32_t r = 0;
  for (const DraftSequence& sequence : sequences) {
    const int32_t first = r;
    const Position low = std::max(sequence.window_floor, sequence.last - s_.window + 1);
    for (int32_t k = 0; k < width; ++k, ++r) {
      host.tokens[r] = k == 0 ? sequence.next : s_.draft_noise_id;
      host.image_row[r] = -1;
      host.encoder.slots[r] = sequence.slot;
      host.encoder.positions[r] = static_cast<int32_t>(sequence.last + 1 + k);
      host.encoder.spans[r] = {static_cast<int32_t>(low), static_cast<int32_t>(sequence.last + 1), first, first + width};
      host.encoder.is_image[r] = 0;
    }
  }
  *host.encoder.count = r;
  *host.logit_count = static_cast<int32_t>(sequences.size());
  w_.counts = {.encoder = r, .decoder = 0, .logits = 0, .images = false};
  upload_arrays(block, s_.draft_experts_per_token);

  const size_t draws = sequences.size() * static_cast<size_t>(width);
  w_.draft_staging.assign(settings.begin(), settings.end());
  if (settings.empty())
    w_.draft_staging.assign(draws, SampleRow{.temperature = 0, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1});
  if (w_.draft_staging.size() != draws) return internal_error("a draft pass needs settings for each step and sequence");
  w_.device->upload(w_.draft_settings, w_.draft_staging.data(), draws * sizeof(SampleRow));
  return {};
}

void V41Pass::draft_stage(int32_t stage, const RowSet& set) {
  const LayerWeights& lw = m_.device_weights().draft[static_cast<size_t>(stage)];
  const int32_t ring = s_.layers + stage;
  site_input(set, lw.hc_attn, w_.pre, set.pre, lw.attn_norm);
  quantize(set.rows, w_.u, s_.hidden, w_.u_codes, w_.u_scales);
  project_window(lw, ring, set);
  matmul8(set.rows, w_.u_codes, w_.u_scales, lw.wq_a, w_.qr_raw);
  rms_norm(set.rows, w_.qr_raw, lw.q_norm, s_.q_rank, w_.qr);
  quantize(set.rows, w_.qr, s_.q_rank, w_.qr_codes, w_.qr_scales);
  attend(lw, ring, set, nullptr);
  expand(set);
  site_input(set, lw.hc_ffn, set.pre, w_.pre, lw.ffn_norm);
  moe(lw, ring, s_.draft_experts, s_.draft_experts_per_token, true, set);
  expand(set);
}

// Base logits of the block, then one Markov step after the other: each needs the token drawn before it.
void V41Pass::draft_heads(int32_t sequences, const RowSet& set) {
  const Weights& weights = m_.device_weights();
  const DraftExtra& extra = *weights.draft_extra;
  const int32_t width = s_.draft_block;
  ops_.collapse_norm({.rows = set.rows,
                      .x = set.x,
                      .pre = set.pre,
                      .weight = extra.norm,
                      .u = w_.draft_z,
                      .collapsed = w_.draft_collapsed,
                      .hidden = s_.hidden,
                      .streams = s_.streams,
                      .eps = s_.rms_eps});
  matmul(set.rows, w_.draft_z, s_.hidden, weights.head, w_.draft_base, OutputType::kF32);
  const Rows rows{w_.rows.logit_count, w_.limits.max_drafts};
  const auto* embed = static_cast<const Bf16*>(extra.markov_embed.data);
  for (int32_t k = 0; k < width; ++k) {
    const int64_t at = int64_t{k} * sequences;
    const int32_t* prev = k == 0 ? w_.rows.tokens : &w_.draft_results[at - sequences].token;
    const int64_t prev_stride = k == 0 ? width : static_cast<int64_t>(sizeof(SampleResult) / sizeof(int32_t));
    float* logits = w_.draft_logits + at * s_.vocab;
    ops_.markov({.rows = rows,
                 .base = w_.draft_base + int64_t{k} * s_.vocab,
                 .base_stride = int64_t{width} * s_.vocab,
                 .prev = prev,
                 .prev_stride = prev_stride,
                 .embed = embed,
                 .head = static_cast<const Bf16*>(extra.markov_head.data),
                 .logits = logits,
                 .logits_stride = s_.vocab,
                 .vocab = s_.vocab,
                 .rank = s_.markov_rank});
    ops_.confidence({.rows = rows,
                     .x = w_.draft_collapsed + int64_t{k} * s_.hidden,
                     .x_stride = int64_t{width} * s_.hidden,
                     .prev = prev,
                     .prev_stride = prev_stride,
                     .embed = embed,
                     .proj = extra.confidence,
                     .conf = w_.draft_confidence + at,
                     .conf_stride = 1,
                     .hidden = s_.hidden,
                     .rank = s_.markov_rank});
    ops_.sample({.rows = rows,
                 .logits = logits,
                 .settings = w_.draft_settings + at,
                 .bias_ids = nullptr,
                 .bias_values = nullptr,
                 .history = nullptr,
                 .masks = nullptr,
                 .mask_words = 0,
                 .scratch = w_.sample_scratch,
                 .scratch_rows = w_.device->parallelism(),
                 .results = w_.draft_results + at,
                 .vocab = s_.vocab,
                 .draft_logits = nullptr});
  }
}

}  // namespace deepinfer
