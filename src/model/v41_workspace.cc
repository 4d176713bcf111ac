#include "model/v41_workspace.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int64_t kAlignment = 128;

// Two passes over the same list: the first measures, the second assigns.
class DeviceCarver {
 public:
  explicit DeviceCarver(uint8_t* base) : base_(base) {}
  template <class T>
  void take(T*& out, int64_t count) {
    out = reinterpret_cast<T*>(base_ + at_);
    at_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  // Codes and e8m0 scales of q8 rows.
  void take_quantized(uint8_t*& codes, uint8_t*& scales, int64_t rows, int64_t width) {
    take(codes, rows * width);
    take(scales, rows * width / 32);
  }
  uint8_t* here() const { return base_ + at_; }
  void skip(int64_t bytes) { at_ += (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  int64_t bytes() const { return at_; }

 private:
  uint8_t* base_;
  int64_t at_ = 0;
};

int64_t largest_entries(const ModelShape& shape, int64_t max_context) {
  int64_t entries = 1;
  for (const LayerPlan& plan : shape.plan) {
    if (plan.ratio > 0) entries = std::max(entries, max_context / plan.ratio + 1);
  }
  return entries;
}

void carve_attention(DeviceCarver& c, V41Workspace& w, const ModelShape& s, int64_t m) {
  c.take(w.qr_raw, m * s.q_rank);
  c.take(w.qr, m * s.q_rank);
  c.take_quantized(w.qr_codes, w.qr_scales, m, s.q_rank);
  c.take(w.q, m * s.heads * s.head_dim);
  c.take(w.o, m * s.heads * s.head_dim);
  c.take(w.kv, m * s.head_dim);
  c.take_quantized(w.kv_codes, w.kv_scales, m, s.head_dim);
  c.take(w.value, m * s.head_dim);
  c.take(w.gate, m * s.head_dim);
  c.take(w.latent, m * s.head_dim);
  c.take(w.latent_norm, m * s.head_dim);
  c.take(w.key, m * s.index_dim);
  c.take(w.index_q, m * s.index_heads * s.index_dim);
  c.take(w.index_w, m * s.index_heads);
  c.take(w.selected, m * s.index_topk);
  c.take(w.candidates, m * std::max(1, s.candidate_blocks));
  c.take(w.score_scratch, w.device->parallelism() * w.max_entries);
  if (w.limits.keep_scores) c.take(w.scores_out, m * w.max_entries);
  c.take(w.wo, m * s.o_groups * s.o_rank);
  c.take_quantized(w.wo_codes, w.wo_scales, m, int64_t{s.o_groups} * s.o_rank);
}

void carve_moe(DeviceCarver& c, V41Workspace& w, const ModelShape& s, int64_t m) {
  const int64_t experts = std::max(s.experts, s.draft_experts);
  const int64_t top_k = std::max(s.experts_per_token, s.draft_experts_per_token);
  const int64_t all = m * w.limits.ranks;
  const int64_t pairs = all * top_k;
  c.take(w.router_logits, m * experts);
  c.take(w.expert_ids, m * top_k);
  c.take(w.expert_weights, m * top_k);
  c.take(w.pair_row, pairs);
  c.take(w.pair_slot, pairs);
  c.take(w.pair_of, pairs);
  c.take(w.pair_offsets, experts + 1);
  c.take(w.num_pairs, 1);
  c.take(w.expert_gate, pairs * s.expert_hidden);
  c.take(w.expert_up, pairs * s.expert_hidden);
  c.take_quantized(w.expert_h_codes, w.expert_h_scales, pairs, s.expert_hidden);
  c.take(w.expert_out, pairs * s.hidden);
  c.take(w.shared_gate, m * s.expert_hidden);
  c.take(w.shared_up, m * s.expert_hidden);
  c.take_quantized(w.shared_h_codes, w.shared_h_scales, m, s.expert_hidden);
  c.take(w.shared_out, m * s.hidden);
  if (w.limits.ranks == 1) return;
  c.take(w.no_experts, m * top_k);
  c.take(w.home, m * top_k);
  c.take(w.expert_ids_all, pairs);
  c.take(w.expert_weights_all, pairs);
  c.take_quantized(w.u_codes_all, w.u_scales_all, all, s.hidden);
  c.take(w.all_counts, 4);
  c.take(w.expert_send, pairs * s.hidden);
  c.take(w.expert_recv, pairs * s.hidden);
}

void carve_draft(DeviceCarver& c, V41Workspace& w, const ModelShape& s, int64_t m) {
  const int64_t targets = static_cast<int64_t>(s.draft_targets.size());
  const int64_t rows = int64_t{w.limits.max_drafts} * s.draft_block;
  c.take(w.taps, m * targets * s.hidden);
  if (rows == 0) return;
  c.take_quantized(w.taps_codes, w.taps_scales, m, targets * s.hidden);
  c.take(w.main_raw, m * s.hidden);
  c.take(w.main_x, m * s.hidden);
  c.take(w.draft_collapsed, rows * s.hidden);
  c.take(w.draft_z, rows * s.hidden);
  c.take(w.draft_base, rows * s.vocab);
  c.take(w.draft_logits, rows * s.vocab);
  c.take(w.draft_confidence, rows);
  c.take(w.draft_settings, rows);
  c.take(w.draft_results, rows);
  c.take(w.sample_scratch, int64_t{w.device->parallelism()} * 2 * s.vocab);
}

void carve_workspace(DeviceCarver& c, V41Workspace& w, const ModelShape& s) {
  const int64_t m = w.limits.max_rows;
  const int64_t width = int64_t{s.streams} * s.hidden;
  w.rows = w.rows_layout.at(c.here());
  c.skip(w.rows_layout.bytes());
  c.take(w.x_encoder, m * width);
  c.take(w.x_decoder, m * width);
  c.take(w.pre_encoder, m * s.streams);
  c.take(w.pre_decoder, m * s.streams);
  c.take(w.rope_encoder, 2 * m * s.rope_dim);
  c.take(w.rope_decoder, 2 * m * s.rope_dim);
  c.take(w.pre, m * s.streams);
  c.take(w.post, m * s.streams);
  c.take(w.comb, m * s.streams * s.streams);
  c.take(w.u, m * s.hidden);
  c.take_quantized(w.u_codes, w.u_scales, m, s.hidden);
  c.take(w.site_out, m * s.hidden);
  carve_attention(c, w, s, m);
  carve_moe(c, w, s, m);
  if (!s.engram_layers.empty()) {
    const int64_t columns = s.engram_columns();
    const int64_t layers = static_cast<int64_t>(s.engram_layers.size());
    c.take(w.hash_rows, layers * m * columns);
    c.take(w.engram_rows, m * columns * s.engram_dim);
    c.take_quantized(w.engram_codes, w.engram_scales, layers * m, columns * s.engram_dim);
    c.take(w.engram_kvv, m * (s.streams + 1) * s.hidden);
    c.take(w.engram_gates, m * s.streams);
  }
  c.take(w.z_source, w.limits.max_logits * width);
  c.take(w.z_pre, int64_t{w.limits.max_logits} * s.streams);
  c.take(w.z, int64_t{w.limits.max_logits} * s.hidden);
  c.take(w.logit_values, int64_t{w.limits.max_logits} * s.vocab);
  if (s.draft_stages > 0) carve_draft(c, w, s, m);
  c.take(w.image_rows, s.vision ? m * s.hidden : 0);
}

}  // namespace

Result<std::unique_ptr<V41Workspace>> V41Workspace::create(Device& device, const ModelShape& shape, const V41Limits& limits) {
  std::unique_ptr<V41Workspace> w(new V41Workspace());
  w->device = &device;
  w->scores_out = nullptr;
  w->limits = limits;
  // A draft pass runs its blocks through the same buffers as a step.
  w->limits.max_rows = std::max(limits.max_rows, limits.max_drafts * shape.draft_block);
  w->max_entries = largest_entries(shape, limits.max_context);
  w->rows_layout = StepArraysLayout(w->limits.max_rows, limits.max_logits);
  for (auto& block : w->staging) block.resize(static_cast<size_t>(w->rows_layout.bytes()));
  DeviceCarver measure(nullptr);
  carve_workspace(measure, *w, shape);
  DI_TRY(w->memory_, device.allocate(static_cast<size_t>(measure.bytes())));
  DeviceCarver assign(w->memory_.as<uint8_t>());
  carve_workspace(assign, *w, shape);
  if (limits.ranks > 1) {
    const int32_t m = w->limits.max_rows;
    const int32_t top_k = std::max(shape.experts_per_token, shape.draft_experts_per_token);
    const std::vector<int32_t> none(static_cast<size_t>(m) * static_cast<size_t>(top_k), -1);
    w->most_rows = {m, m};
    device.upload(w->no_experts, none.data(), none.size() * sizeof(int32_t));
    DI_CHECK_OK(device.wait(device.record()));
  }
  return w;
}

}  // namespace deepinfer
