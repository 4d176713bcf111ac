#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "core/kv_layout.h"
#include "model/layer_plan.h"

namespace deepinfer {
namespace {

// Bounds of a whole number: between min and max and a multiple of `multiple`.
struct Range {
  int64_t min, max, multiple = 1;
};

// Each visit_* below lists the keys of one config object once; reading, checking and writing are visitors over that list.
// Bounds are far above any real model, yet keep products of three sizes inside 63 bits and matrix sides inside 31.

template <class V>
void visit_top(ModelShape& s, V&& v) {
  v.fixed("model_type", "deepseek_v41", true);
  v.whole("bos_token_id", s.bos_id, {0, s.vocab - 1});
  v.whole("eos_token_id", s.eos_id, {0, s.vocab - 1});
  v.whole("pad_token_id", s.pad_id, {0, s.vocab - 1});
  if (s.vision || v.present("image_token_id")) v.whole("image_token_id", s.image_id, {s.vision ? 0 : -1, s.vocab - 1});
}

template <class V>
void visit_quantization(V&& v) {
  v.fixed("quant_method", "fp8", false);
  v.fixed("activation_scheme", "dynamic", false);
  v.fixed("weight_block_size", Json::array({Json(32), Json(32)}), false);
  v.fixed("scale_fmt", "ue8m0", false);
  v.fixed("expert_dtype", "fp4", false);
}

template <class V>
void visit_core(ModelShape& s, V&& v) {
  v.whole("vocab_size", s.vocab, {4, 1 << 24});
  v.whole("hidden_size", s.hidden, {32, 65536, 32});
  v.whole("num_hidden_layers", s.layers, {1, 1024});
  v.whole("moe_intermediate_size", s.expert_hidden, {32, 65536, 32});
  v.whole("num_attention_heads", s.heads, {1, 4096});
  v.fixed("num_key_value_heads", 1, false);
  v.whole("head_dim", s.head_dim, {32, 4096, 32});
  v.whole("qk_rope_head_dim", s.rope_dim, {2, kMaxRopeDim, 2});
  v.whole("q_lora_rank", s.q_rank, {32, 65536, 32});
  v.whole("o_lora_rank", s.o_rank, {1, 65536});
  v.whole("o_groups", s.o_groups, {1, 4096});
  v.fixed("hidden_act", "silu", false);
  v.real("swiglu_limit", s.swiglu_limit, 1e-6, 1e9);
  v.real("rms_norm_eps", s.rms_eps, 0, 1);
  v.fixed("tie_word_embeddings", false, false);
  v.whole("max_position_embeddings", s.max_context, {1, int64_t{1} << 30});
  v.whole("n_routed_experts", s.experts, {1, kMaxExperts});
  v.fixed("n_shared_experts", 1, false);
  v.whole("num_experts_per_tok", s.experts_per_token, {1, 64});
  v.fixed("scoring_func", "sqrtsoftplus", false);
  v.fixed("topk_method", "noaux_tc", false);
  v.fixed("norm_topk_prob", true, false);
  v.real("routed_scaling_factor", s.routed_scaling, 1e-9, 1e9);
  v.whole("sliding_window", s.window, {1, 65536});
  v.whole("hc_mult", s.streams, {1, 8});
  v.whole("hc_sinkhorn_iters", s.sinkhorn_iters, {1, 1000});
  v.real("hc_eps", s.hc_eps, 0, 1);
  v.real("rope_theta", s.rope_theta, 1.0001, 1e12);
  v.whole("num_nextn_predict_layers", s.draft_stages, {0, 16});
  v.list("compress_ratios", s.compress_ratios, {0, 2}, 1024 + 16);
  v.list("kv_source_layer_ids", s.kv_sources, {0, s.layers - 1}, 1024);
  v.list("index_source_layer_ids", s.index_sources, {0, s.layers - 1}, 1024);
  if (v.present("engram_layer_ids")) v.list("engram_layer_ids", s.engram_layers, {0, s.layers - 1}, 64);
}

// Only with global KV.
template <class V>
void visit_index(ModelShape& s, V&& v) {
  v.real("compress_rope_theta", s.compress_rope_theta, 1.0001, 1e12);
  v.whole("index_n_heads", s.index_heads, {1, 4096});
  v.whole("index_head_dim", s.index_dim, {32, 4096, 32});
  v.whole("index_topk", s.index_topk, {1, 1 << 20});
  v.whole("candidate_source_layer_id", s.candidate_source, {0, s.layers - 1});
  v.whole("candidate_topk_blocks", s.candidate_blocks, {1, 1 << 24});
  v.whole("candidate_block_size", s.candidate_block, {1, 4096});
}

template <class V>
void visit_yarn(YarnScaling& s, V&& v) {
  v.real("factor", s.factor, 1, 1e6);
  v.real("beta_fast", s.beta_fast, 1e-6, 1e6);
  v.real("beta_slow", s.beta_slow, 1e-6, 1e6);
  v.whole("original_max_position_embeddings", s.original_context, {1, int64_t{1} << 30});
}

template <class V>
void visit_engram(ModelShape& s, V&& v) {
  v.list("engram_num_embeddings", s.engram_rows, {1, int64_t{1} << 40}, 64);
  v.whole("engram_max_ngram_size", s.engram_ngram, {2, 8});
  v.whole("engram_vocab_size", s.engram_vocab, {2, int64_t{1} << 31});
  v.whole("engram_n_heads", s.engram_heads, {1, 32});
  v.whole("engram_head_dim", s.engram_dim, {32, 4096, 32});
  v.whole("engram_pad_token_id", s.engram_pad_id, {0, s.vocab - 1});
  v.whole("engram_compressed_vocab_size", s.engram_compressed_vocab, {1, s.vocab});
}

template <class V>
void visit_draft(ModelShape& s, V&& v) {
  // A verification of block + 1 rows may leave one open pair per compressor tail, no more (core/kv_layout.h).
  v.whole("dspark_block_size", s.draft_block, {1, 2 * kTailSlots - 2});
  v.whole("dspark_noise_token_id", s.draft_noise_id, {0, s.vocab - 1});
  v.list("dspark_target_layer_ids", s.draft_targets, {0, s.layers - 1}, 64);
  v.whole("dspark_markov_rank", s.markov_rank, {1, 65536});
  v.whole("dspark_n_routed_experts", s.draft_experts, {1, kMaxExperts});
  v.whole("dspark_num_experts_per_tok", s.draft_experts_per_token, {1, 64});
}

template <class V>
void visit_vision(VisionShape& s, V&& v) {
  v.whole("num_hidden_layers", s.layers, {1, 256});
  v.whole("hidden_size", s.hidden, {4, 65536, 4});
  v.whole("num_attention_heads", s.heads, {1, 1024});
  v.whole("intermediate_size", s.intermediate, {1, 1 << 20});
  v.whole("patch_size", s.patch, {1, 64});
  v.real("rope_theta", s.rope_theta, 1.0001, 1e12);
  v.whole("downsample_ratio", s.downsample, {1, 8});
  v.whole("max_image_tokens", s.max_image_tokens, {8, 65536});
  v.whole("min_pixels", s.min_pixels, {0, int64_t{1} << 32});
  v.optional_real("max_wh_ratio", s.max_wh_ratio, 1e-3, 1e6);
}

// Shared by the visitors: where we are, and the first fault found.
class Place {
 public:
  explicit Place(std::string_view file) : file_(file) {}
  void fail(std::string_view section, std::string_view key, std::string_view fault) {
    if (!fault_) fault_ = corrupt(fmt::format("{}: {}{}{} {}", file_, section, section.empty() ? "" : ".", key, fault));
  }
  void fail(Error error) {
    if (!fault_) fault_ = std::move(error);
  }
  const std::optional<Error>& fault() const { return fault_; }
  std::string_view file() const { return file_; }

 private:
  std::string_view file_;
  std::optional<Error> fault_;
};

std::string describe(Range range) {
  const std::string multiple = range.multiple > 1 ? fmt::format("a multiple of {}", range.multiple) : "an integer";
  return fmt::format("{} between {} and {}", multiple, range.min, range.max);
}

bool inside(int64_t value, Range range) { return value >= range.min && value <= range.max && value % range.multiple == 0; }

// Checks values that are there already.
class Checker {
 public:
  Checker(Place& place, std::string_view section) : place_(place), section_(section) {}
  bool present(std::string_view) const { return true; }
  void fixed(std::string_view, const Json&, bool) {}
  void whole(std::string_view key, int64_t value, Range range) {
    if (!inside(value, range)) place_.fail(section_, key, fmt::format("must be {}, got {}", describe(range), value));
  }
  void real(std::string_view key, double value, double min, double max) {
    if (!(value >= min && value <= max))
      place_.fail(section_, key, fmt::format("must be between {:g} and {:g}, got {:g}", min, max, value));
  }
  void optional_real(std::string_view key, std::optional<double> value, double min, double max) {
    if (value) real(key, *value, min, max);
  }
  template <class T>
  void list(std::string_view key, const std::vector<T>& values, Range range, size_t most) {
    if (values.size() > most)
      place_.fail(section_, key, fmt::format("has {} entries, at most {} are supported", values.size(), most));
    for (const T value : values) {
      if (!inside(value, range))
        return place_.fail(section_, key, fmt::format("must hold values that are {}, got {}", describe(range), value));
    }
  }

 private:
  Place& place_;
  std::string_view section_;
};

// Reads values out of a JSON object and checks them.
class Reader {
 public:
  Reader(Place& place, const Json& object, std::string_view section)
      : place_(place), object_(object), section_(section), check_(place, section) {}

  bool present(std::string_view key) const { return !object_.at(key).is_null(); }

  void fixed(std::string_view key, const Json& value, bool required) {
    const Json& found = object_.at(key);
    if (found.is_null() && !required) return;
    if (found.is_null()) return place_.fail(section_, key, "is missing");
    if (!(found == value)) place_.fail(section_, key, fmt::format("is {}; only {} is implemented", text_of(found), value.dump()));
  }

  template <class T>
  void whole(std::string_view key, T& out, Range range) {
    const auto value = number(key, object_.at(key));
    if (!value) return;
    check_.whole(key, *value, range);
    if (inside(*value, range)) out = static_cast<T>(*value);
  }

  template <class T>
  void real(std::string_view key, T& out, double min, double max) {
    const Json& found = object_.at(key);
    if (found.is_null()) return place_.fail(section_, key, "is missing");
    const auto value = found.to_double(key);
    if (!value) return place_.fail(section_, key, fmt::format("must be a number, got {}", text_of(found)));
    check_.real(key, *value, min, max);
    out = static_cast<T>(*value);
  }

  void optional_real(std::string_view key, std::optional<double>& out, double min, double max) {
    if (present(key)) real(key, out.emplace(), min, max);
  }

  template <class T>
  void list(std::string_view key, std::vector<T>& out, Range range, size_t most) {
    const Json& found = object_.at(key);
    if (found.is_null()) return place_.fail(section_, key, "is missing");
    if (!found.is_array()) return place_.fail(section_, key, fmt::format("must be an array of integers, got {}", text_of(found)));
    if (found.size() > most)
      return place_.fail(section_, key, fmt::format("has {} entries, at most {} are supported", found.size(), most));
    out.clear();
    for (const Json& item : found.items()) {
      const auto value = number(key, item);
      if (!value) return;
      if (!inside(*value, range))
        return place_.fail(section_, key, fmt::format("must hold values that are {}, got {}", describe(range), *value));
      out.push_back(static_cast<T>(*value));
    }
  }

 private:
  static std::string text_of(const Json& value) {
    constexpr size_t kMost = 60;
    std::string text = value.dump();
    if (text.size() > kMost) text = value.kind_name();
    return text;
  }

  std::optional<int64_t> number(std::string_view key, const Json& value) {
    if (value.is_null()) {
      place_.fail(section_, key, "is missing");
      return std::nullopt;
    }
    const auto number = value.to_int64(key);
    if (number) return *number;
    place_.fail(section_, key, fmt::format("must be an integer, got {}", text_of(value)));
    return std::nullopt;
  }

  Place& place_;
  const Json& object_;
  std::string_view section_;
  Checker check_;
};

class Writer {
 public:
  explicit Writer(Json& object) : object_(object) {}
  bool present(std::string_view) const { return true; }
  void fixed(std::string_view key, const Json& value, bool) { object_.set(std::string(key), value); }
  void whole(std::string_view key, int64_t value, Range) { object_.set(std::string(key), Json(value)); }
  void real(std::string_view key, float value, double, double) {
    object_.set(std::string(key), Json::number(fmt::format("{}", value)));
  }
  void real(std::string_view key, double value, double, double) { object_.set(std::string(key), Json(value)); }
  void optional_real(std::string_view key, std::optional<double> value, double, double) {
    object_.set(std::string(key), value ? Json(*value) : Json());
  }
  template <class T>
  void list(std::string_view key, const std::vector<T>& values, Range, size_t) {
    Json items = Json::array();
    for (const T value : values) items.push_back(Json(static_cast<int64_t>(value)));
    object_.set(std::string(key), std::move(items));
  }

 private:
  Json& object_;
};

// The text_config keys that apply to this shape. `v` has read or will read the conditions before the groups they govern.
template <class V>
void visit_text(ModelShape& s, V&& v) {
  visit_core(s, v);
  if (!s.kv_sources.empty()) visit_index(s, v);
  if (!s.engram_layers.empty()) visit_engram(s, v);
  if (s.draft_stages > 0) visit_draft(s, v);
}

}  // namespace

Status finish_model_shape(ModelShape& shape, std::string_view file) {
  Place place(file);
  visit_text(shape, Checker(place, "text_config"));
  if (!shape.kv_sources.empty()) visit_yarn(shape.yarn, Checker(place, "text_config.rope_scaling"));
  visit_top(shape, Checker(place, ""));
  if (shape.vision) visit_vision(*shape.vision, Checker(place, "vision_config"));
  if (place.fault()) return *place.fault();
  return derive_layer_plan(shape, file);
}

Result<ModelShape> parse_model_config(std::string_view text, std::string_view file) {
  const auto json = Json::parse(text, {.max_depth = 32});
  if (!json) return corrupt(fmt::format("{}: {}", file, json.error().message));
  Place place(file);
  const Json& model_type = json->at("model_type");
  if (!json->is_object()) place.fail("", "the file", "must hold a JSON object");
  if (model_type.is_null()) place.fail("", "model_type", "is missing");
  const Json& core = json->at("text_config");
  if (!core.is_object()) place.fail("", "text_config", "must be an object (the nested config.json of the release)");
  if (place.fault()) return *place.fault();

  ModelShape shape;
  visit_text(shape, Reader(place, core, "text_config"));
  if (!shape.kv_sources.empty()) {
    Reader(place, core.at("rope_scaling"), "text_config.rope_scaling").fixed("rope_type", "yarn", false);
    visit_yarn(shape.yarn, Reader(place, core.at("rope_scaling"), "text_config.rope_scaling"));
  }
  if (const Json& vision = json->at("vision_config"); !vision.is_null()) {
    visit_vision(shape.vision.emplace(), Reader(place, vision, "vision_config"));
  }
  visit_quantization(Reader(place, json->at("quantization_config"), "quantization_config"));
  visit_top(shape, Reader(place, *json, ""));
  if (place.fault()) return *place.fault();
  DI_CHECK_OK(derive_layer_plan(shape, file));
  return shape;
}

std::string model_config_text(const ModelShape& shape) {
  ModelShape copy = shape;  // the visitors take what they visit by reference
  Json top = Json::object({{"architectures", Json::array({Json("DeepseekV41ForCausalLM")})}});
  visit_top(copy, Writer(top));
  top.set("dtype", "bfloat16");
  Json quantization = Json::object();
  visit_quantization(Writer(quantization));
  top.set("quantization_config", std::move(quantization));
  Json core = Json::object({{"model_type", Json("deepseek_v41_text")}});
  visit_text(copy, Writer(core));
  Json yarn = Json::object({{"rope_type", Json("yarn")}});
  visit_yarn(copy.yarn, Writer(yarn));
  core.set("rope_scaling", std::move(yarn));
  top.set("text_config", std::move(core));
  if (copy.vision) {
    Json vision = Json::object({{"model_type", Json("deepseek_v41_vision")}});
    visit_vision(*copy.vision, Writer(vision));
    top.set("vision_config", std::move(vision));
  }
  return top.dump(2) + "\n";
}

}  // namespace deepinfer
