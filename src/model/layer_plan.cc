#include "model/layer_plan.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "model/config.h"

namespace deepinfer {
namespace {

bool strictly_ascending(const std::vector<int32_t>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
}

bool contains(const std::vector<int32_t>& values, int32_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Largest element <= layer, or -1.
int32_t last_at_or_before(const std::vector<int32_t>& sources, int32_t layer) {
  const auto at = std::upper_bound(sources.begin(), sources.end(), layer);
  return at == sources.begin() ? -1 : *(at - 1);
}

int32_t index_of(const std::vector<int32_t>& values, int32_t value) {
  const auto at = std::find(values.begin(), values.end(), value);
  return at == values.end() ? -1 : static_cast<int32_t>(at - values.begin());
}

// The rules as text of the fault, or nothing. Sizes first, then lists.
std::optional<std::string> size_fault(const ModelShape& s) {
  const int64_t width = int64_t{s.heads} * s.head_dim;
  if (s.rope_dim > s.head_dim) return fmt::format("qk_rope_head_dim {} is larger than head_dim {}", s.rope_dim, s.head_dim);
  if (s.heads % s.o_groups != 0)
    return fmt::format("num_attention_heads {} is not divisible by o_groups {}", s.heads, s.o_groups);
  if (int64_t{s.o_groups} * s.o_rank % 32 != 0)
    return fmt::format("o_groups {} x o_lora_rank {} is not a multiple of 32", s.o_groups, s.o_rank);
  if (int64_t{s.o_groups} * s.o_rank > 1 << 24)
    return fmt::format("o_groups {} x o_lora_rank {} is too large", s.o_groups, s.o_rank);
  if (width > 1 << 22) return fmt::format("num_attention_heads {} x head_dim {} is too large", s.heads, s.head_dim);
  if (s.experts_per_token > s.experts)
    return fmt::format("num_experts_per_tok {} is larger than n_routed_experts {}", s.experts_per_token, s.experts);
  if (int64_t{s.layers} * s.experts > 1 << 17)
    return fmt::format("num_hidden_layers {} x n_routed_experts {} is too large", s.layers, s.experts);
  if (s.draft_stages > 0 && s.draft_experts_per_token > s.draft_experts) {
    return fmt::format("dspark_num_experts_per_tok {} is larger than dspark_n_routed_experts {}", s.draft_experts_per_token,
                       s.draft_experts);
  }
  if (s.vision && (s.vision->hidden % s.vision->heads != 0 || s.vision->hidden / s.vision->heads % 4 != 0)) {
    return fmt::format("vision_config: hidden_size {} does not give {} heads of a multiple of 4 channels", s.vision->hidden,
                       s.vision->heads);
  }
  return std::nullopt;
}

std::optional<std::string> index_fault(const ModelShape& s) {
  if (s.kv_sources.empty()) return std::nullopt;
  if (s.rope_dim > s.index_dim)
    return fmt::format("qk_rope_head_dim {} is larger than index_head_dim {}", s.rope_dim, s.index_dim);
  if (int64_t{s.candidate_blocks} * s.candidate_block < s.index_topk) {
    return fmt::format("candidate_topk_blocks {} x candidate_block_size {} is smaller than index_topk {}", s.candidate_blocks,
                       s.candidate_block, s.index_topk);
  }
  if (!(s.yarn.beta_fast >= s.yarn.beta_slow)) return "rope_scaling.beta_fast is smaller than beta_slow";
  if (s.candidate_source != s.kv_sources.back()) {
    return fmt::format("candidate_source_layer_id {} is not the last of kv_source_layer_ids ({})", s.candidate_source,
                       s.kv_sources.back());
  }
  return std::nullopt;
}

std::optional<std::string> list_fault(const ModelShape& s) {
  const size_t blocks = static_cast<size_t>(s.layers) + static_cast<size_t>(s.draft_stages);
  if (s.compress_ratios.size() != blocks) {
    return fmt::format("compress_ratios has {} entries, expected {} (layers and draft stages)", s.compress_ratios.size(), blocks);
  }
  for (size_t l = static_cast<size_t>(s.layers); l < blocks; ++l) {
    if (s.compress_ratios[l] != 0)
      return fmt::format("compress_ratios of draft stage {} must be 0", l - static_cast<size_t>(s.layers));
  }
  if (!strictly_ascending(s.kv_sources)) return "kv_source_layer_ids must ascend";
  if (!strictly_ascending(s.index_sources)) return "index_source_layer_ids must ascend";
  if (!strictly_ascending(s.engram_layers)) return "engram_layer_ids must ascend";
  if (s.draft_stages > 0 && s.draft_targets.empty()) return "dspark_target_layer_ids is empty";
  if (s.draft_stages > 0 && !strictly_ascending(s.draft_targets)) return "dspark_target_layer_ids must ascend";
  if (!s.engram_layers.empty() && s.engram_rows.size() != s.engram_layers.size()) {
    return fmt::format("engram_num_embeddings has {} entries for {} engram_layer_ids", s.engram_rows.size(),
                       s.engram_layers.size());
  }
  for (const int32_t l : s.kv_sources) {
    if (s.compress_ratios[static_cast<size_t>(l)] == 0)
      return fmt::format("kv_source_layer_ids: layer {} has compress ratio 0", l);
    if (!contains(s.index_sources, l)) return fmt::format("kv_source_layer_ids: layer {} is not in index_source_layer_ids", l);
  }
  for (const int32_t l : s.index_sources) {
    if (s.compress_ratios[static_cast<size_t>(l)] == 0)
      return fmt::format("index_source_layer_ids: layer {} has compress ratio 0", l);
  }
  return std::nullopt;
}

AttentionMode mode_of(int32_t layer, const LayerPlan& plan) {
  if (plan.ratio == 0) return AttentionMode::kWindow;
  if (plan.kv_source == layer) return AttentionMode::kFull;
  return plan.index_source == layer ? AttentionMode::kReindex : AttentionMode::kReuse;
}

}  // namespace

const char* attention_mode_name(AttentionMode mode) {
  switch (mode) {
    case AttentionMode::kWindow: return "window";
    case AttentionMode::kFull: return "full";
    case AttentionMode::kReuse: return "reuse";
    case AttentionMode::kReindex: return "reindex";
  }
  return "unknown";
}

Status derive_layer_plan(ModelShape& shape, std::string_view file) {
  auto fault = size_fault(shape);
  if (!fault) fault = list_fault(shape);
  if (!fault) fault = index_fault(shape);
  if (fault) return corrupt(fmt::format("{}: {}", file, *fault));
  std::vector<LayerPlan> plan(static_cast<size_t>(shape.layers));
  for (int32_t l = 0; l < shape.layers; ++l) {
    LayerPlan& layer = plan[static_cast<size_t>(l)];
    layer.ratio = shape.compress_ratios[static_cast<size_t>(l)];
    layer.engram = index_of(shape.engram_layers, l);
    layer.tap = shape.draft_stages > 0 ? index_of(shape.draft_targets, l) : -1;
    if (layer.ratio == 0) continue;
    layer.kv_source = last_at_or_before(shape.kv_sources, l);
    layer.index_source = last_at_or_before(shape.index_sources, l);
    const bool same_ratio = layer.kv_source >= 0 && shape.compress_ratios[static_cast<size_t>(layer.kv_source)] == layer.ratio;
    if (!same_ratio)
      return corrupt(fmt::format("{}: layer {} has compress ratio {}, but no KV source of that ratio is the last at or before it",
                                 file, l, layer.ratio));
    layer.mode = mode_of(l, layer);
  }
  shape.plan = std::move(plan);
  return {};
}

}  // namespace deepinfer
