// Mixture of experts (model.md section 9): route -> dispatch -> experts -> combine, over one or several ranks.
#include <algorithm>
#include <array>

#include "model/v41_pass.h"

namespace deepinfer {

void V41Pass::moe(const LayerWeights& lw, int32_t l, int32_t experts, int32_t top_k, bool draft, const RowSet& set) {
  matmul(set.rows, w_.u, s_.hidden, lw.gate, w_.router_logits, OutputType::kF32);
  const bool ranks = w_.limits.ranks > 1;
  // Other ranks see the padding rows of this one, too: they must name no expert.
  if (ranks) w_.device->copy(w_.expert_ids, w_.no_experts, static_cast<size_t>(rows_of_ranks(set) * top_k) * sizeof(int32_t));
  ops_.route({.rows = set.rows,
              .logits = w_.router_logits,
              .bias = lw.gate_bias,
              .bias_image = lw.gate_bias_image,
              .is_image = draft ? nullptr : set.arrays->is_image,
              .ids = w_.expert_ids,
              .weights = w_.expert_weights,
              .experts = experts,
              .top_k = top_k,
              .scaling = s_.routed_scaling});
  probe("router_logits", l, w_.router_logits, int64_t{experts} * 4, set);
  probe("expert_ids", l, w_.expert_ids, int64_t{top_k} * 4, set);
  probe("expert_w", l, w_.expert_weights, int64_t{top_k} * 4, set);
  quantize(set.rows, w_.u, s_.hidden, w_.u_codes, w_.u_scales);
  shared_expert(lw, set);
  if (ranks) {
    expert_rows_over_ranks(lw, experts, top_k, set);
  } else {
    expert_rows(lw, experts, top_k, set);
  }
}

void V41Pass::shared_expert(const LayerWeights& lw, const RowSet& set) {
  matmul8(set.rows, w_.u_codes, w_.u_scales, lw.shared.w1, w_.shared_gate);
  matmul8(set.rows, w_.u_codes, w_.u_scales, lw.shared.w3, w_.shared_up);
  ops_.swiglu_quantize({.rows = set.rows,
                        .gate = w_.shared_gate,
                        .up = w_.shared_up,
                        .weights = nullptr,
                        .pair_row = nullptr,
                        .pair_slot = nullptr,
                        .top_k = 0,
                        .codes = w_.shared_h_codes,
                        .scales = w_.shared_h_scales,
                        .width = s_.expert_hidden,
                        .limit = s_.swiglu_limit});
  matmul8(set.rows, w_.shared_h_codes, w_.shared_h_scales, lw.shared.w2, w_.shared_out);
}

void V41Pass::expert_rows(const LayerWeights& lw, int32_t experts, int32_t top_k, const RowSet& set) {
  run_experts(lw, set.rows, w_.expert_ids, w_.expert_weights, w_.u_codes, w_.u_scales, 0, experts, top_k);
  ops_.combine({.rows = set.rows,
                .y = w_.expert_out,
                .pair_of = w_.pair_of,
                .shared = w_.shared_out,
                .out = w_.site_out,
                .top_k = top_k,
                .width = s_.hidden});
}

// Pairs of `rows` with experts [first, first + count): expert_out[pair] and pair_of.
void V41Pass::run_experts(const LayerWeights& lw, Rows rows, const int32_t* ids, const float* weights, const uint8_t* codes,
                          const uint8_t* scales, int32_t first, int32_t count, int32_t top_k) {
  ops_.group_pairs({.rows = rows,
                    .ids = ids,
                    .pair_row = w_.pair_row,
                    .pair_slot = w_.pair_slot,
                    .pair_of = w_.pair_of,
                    .offsets = w_.pair_offsets,
                    .num_pairs = w_.num_pairs,
                    .top_k = top_k,
                    .first_expert = first,
                    .num_experts = count});
  const Rows pairs{w_.num_pairs, rows.capacity * top_k};
  const auto project = [&](const std::vector<Matrix>& w, const uint8_t* x, const uint8_t* x_scales, const int32_t* pair_row,
                           Bf16* y) {
    ops_.grouped_matmul({.pairs = pairs,
                         .codes = x,
                         .scales = x_scales,
                         .pair_row = pair_row,
                         .offsets = w_.pair_offsets,
                         .weights = w.data() + first,
                         .num_experts = count,
                         .y = y});
  };
  project(lw.w1, codes, scales, w_.pair_row, w_.expert_gate);
  project(lw.w3, codes, scales, w_.pair_row, w_.expert_up);
  ops_.swiglu_quantize({.rows = pairs,
                        .gate = w_.expert_gate,
                        .up = w_.expert_up,
                        .weights = weights,
                        .pair_row = w_.pair_row,
                        .pair_slot = w_.pair_slot,
                        .top_k = top_k,
                        .codes = w_.expert_h_codes,
                        .scales = w_.expert_h_scales,
                        .width = s_.expert_hidden,
                        .limit = s_.swiglu_limit});
  project(lw.w2, w_.expert_h_codes, w_.expert_h_scales, nullptr, w_.expert_out);
}

// Every rank sees all rows, computes its own experts' pairs, and sends each result home; the sum is made at home in
// ascending expert order, exactly as on one rank.
void V41Pass::expert_rows_over_ranks(const LayerWeights& lw, int32_t experts, int32_t top_k, const RowSet& set) {
  Communicator& ranks = *m_.options_.communicator;
  Device& device = *w_.device;
  const int32_t m = rows_of_ranks(set);
  if (m == 0) return;  // none of the ranks has any
  const int32_t share = (experts + ranks.size() - 1) / ranks.size();
  const int32_t first = std::min(share * ranks.rank(), experts);
  const int32_t count = std::min(share, experts - first);
  const int32_t* counts = w_.all_counts + (set.decoder ? 1 : 0);
  const Rows all{counts, m * ranks.size()};
  const int64_t row = s_.hidden, pairs = int64_t{m} * top_k;
  ranks.all_gather(device, std::array<Gather, 4>{{{w_.u_codes, w_.u_codes_all, m * row},
                                                  {w_.u_scales, w_.u_scales_all, m * row / 32},
                                                  {w_.expert_ids, w_.expert_ids_all, pairs * 4},
                                                  {w_.expert_weights, w_.expert_weights_all, pairs * 4}}});
  run_experts(lw, all, w_.expert_ids_all, w_.expert_weights_all, w_.u_codes_all, w_.u_scales_all, first, count, top_k);
  ops_.gather_rows({.rows = {counts + 2, m * ranks.size() * top_k},
                    .index = w_.pair_of,
                    .src = w_.expert_out,
                    .dst = w_.expert_send,
                    .row_bytes = int64_t{s_.hidden} * 2});
  ranks.all_to_all(device, w_.expert_send, w_.expert_recv, pairs * row * 2);
  ops_.expert_home(
      {.rows = set.rows, .ids = w_.expert_ids, .home = w_.home, .top_k = top_k, .experts_per_rank = share, .stride = m * top_k});
  ops_.combine({.rows = set.rows,
                .y = w_.expert_recv,
                .pair_of = w_.home,
                .shared = w_.shared_out,
                .out = w_.site_out,
                .top_k = top_k,
                .width = s_.hidden});
}

}  // namespace deepinfer
