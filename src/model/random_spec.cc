#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/nearest.h"
#include "model/config.h"
#include "model/engram_tables.h"
#include "model/random_checkpoint.h"

namespace deepinfer {
namespace {

constexpr int32_t kReleaseVocab = 129280, kReleaseCompressedVocab = 99092;
constexpr int64_t kDefaultEngramRows = 1'000'000;

ModelShape release_sizes() {
  ModelShape s;
  s.vocab = kReleaseVocab;
  s.hidden = 5120;
  s.layers = 40;
  s.heads = 64;
  s.head_dim = 512;
  s.rope_dim = 64;
  s.q_rank = 1280;
  s.o_rank = 1024;
  s.o_groups = 8;
  s.expert_hidden = 2304;
  s.experts = 384;
  s.experts_per_token = 6;
  s.routed_scaling = 1.5f;
  s.swiglu_limit = 10.0f;
  s.yarn = {16, 32, 1, 65536};
  s.max_context = 1 << 20;
  s.window = 128;
  s.index_heads = 32;
  s.index_dim = 128;
  s.index_topk = 512;
  s.candidate_blocks = 2048;
  s.candidate_block = 8;
  s.engram_heads = 8;
  s.engram_dim = 256;
  s.draft_stages = 3;
  s.draft_block = 5;
  s.markov_rank = 256;
  s.draft_experts_per_token = 3;
  return s;
}

// The release's tower at another depth and width: heads of 64, the same ratio of the inner width.
VisionShape vision_shape(int32_t layers, int32_t hidden) {
  VisionShape s;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = std::max(1, hidden / 64);
  s.intermediate = static_cast<int32_t>(int64_t{hidden} * 11 / 4);
  s.max_image_tokens = 1024;
  s.min_pixels = 295936;
  return s;
}

// What the keys of a SPEC set besides the shape itself.
struct Choices {
  uint64_t seed = 0;
  int32_t draft_experts = -1, vision_layers = 0, vision_hidden = 1024;
  int64_t engram_rows = kDefaultEngramRows;
};

using Target = std::variant<int32_t*, int64_t*, uint64_t*>;
std::vector<std::pair<std::string, Target>> spec_keys(ModelShape& s, Choices& c) {
  return {{"layers", &s.layers},
          {"hidden", &s.hidden},
          {"heads", &s.heads},
          {"head_dim", &s.head_dim},
          {"rope", &s.rope_dim},
          {"q_rank", &s.q_rank},
          {"o_rank", &s.o_rank},
          {"o_groups", &s.o_groups},
          {"window", &s.window},
          {"context", &s.max_context},
          {"vocab", &s.vocab},
          {"streams", &s.streams},
          {"experts", &s.experts},
          {"top_k", &s.experts_per_token},
          {"expert_hidden", &s.expert_hidden},
          {"draft", &s.draft_stages},
          {"draft_experts", &c.draft_experts},
          {"draft_top_k", &s.draft_experts_per_token},
          {"draft_block", &s.draft_block},
          {"markov_rank", &s.markov_rank},
          {"index_heads", &s.index_heads},
          {"index_dim", &s.index_dim},
          {"index_topk", &s.index_topk},
          {"candidate_blocks", &s.candidate_blocks},
          {"candidate_block", &s.candidate_block},
          {"engram_rows", &c.engram_rows},
          {"engram_heads", &s.engram_heads},
          {"engram_dim", &s.engram_dim},
          {"vision", &c.vision_layers},
          {"vision_hidden", &c.vision_hidden},
          {"seed", &c.seed}};
}

Status set_key(std::string_view key, std::string_view value, std::span<const std::pair<std::string, Target>> keys) {
  for (const auto& [name, target] : keys) {
    if (name != key) continue;
    return std::visit(
        [&](auto* out) -> Status {
          const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), *out);
          if (status == std::errc() && end == value.data() + value.size()) return {};
          return invalid_argument(fmt::format("-m random: {} must be a whole number, got '{}'", key, value));
        },
        target);
  }
  std::vector<std::string> names;
  for (const auto& entry : keys) names.push_back(entry.first);
  return invalid_argument(fmt::format("-m random: unknown key '{}'{}", key, did_you_mean(key, names)));
}

// The lists of ratios, sources, Engram layers and draft taps for shape.layers layers (rules in the header).
void random_layer_plan(ModelShape& s) {
  const int32_t total = s.layers;
  const int32_t windows = total >= 8 ? 2 : total >= 3 ? 1 : 0;
  const int32_t rest = total - windows;
  const int32_t encoder = rest >= 2 ? std::max(1, (rest - 1) / 2) : 0;
  const int32_t decoder_begin = windows + encoder, decoder = rest - encoder;
  const int32_t groups = encoder == 0 ? 0 : encoder >= 18 ? 3 : encoder >= 4 ? 2 : 1;
  const int32_t period = decoder >= 8 ? 4 : decoder >= 3 ? 2 : 1;
  s.compress_ratios.assign(static_cast<size_t>(total) + static_cast<size_t>(s.draft_stages), 0);
  for (int32_t l = windows; l < total; ++l) s.compress_ratios[static_cast<size_t>(l)] = l < decoder_begin ? 2 : 1;
  for (int32_t g = 0; g < groups; ++g) s.kv_sources.push_back(windows + g * encoder / groups);
  s.kv_sources.push_back(decoder_begin);
  s.index_sources = s.kv_sources;
  for (int32_t l = decoder_begin + period; l < total; l += period) s.index_sources.push_back(l);
  s.candidate_source = decoder_begin;
  if (total > 1) s.engram_layers.push_back(1);
  if (groups > 0 && s.kv_sources[static_cast<size_t>(groups) - 1] > 1)
    s.engram_layers.push_back(s.kv_sources[static_cast<size_t>(groups) - 1]);
  for (int32_t l = std::max(0, total - 3); l < total; ++l) s.draft_targets.push_back(l);
}

void place_ids(ModelShape& s) {
  const bool release = s.vocab == kReleaseVocab;
  s.bos_id = 0;
  s.eos_id = 1;
  s.pad_id = s.engram_pad_id = 2;
  s.draft_noise_id = release ? 128799 : s.vocab - 1;
  s.image_id = release ? 129264 : s.vocab - 2;
  s.engram_compressed_vocab = release ? kReleaseCompressedVocab : s.vocab;
}

void size_engram(ModelShape& s, int64_t rows) {
  if (rows <= 0 || s.engram_heads < 1 || s.engram_heads > 32) return s.engram_layers.clear();
  s.engram_vocab = std::clamp<int64_t>(rows / s.engram_columns(), 2, int64_t{1} << 31);
  s.engram_rows = compute_engram_tables(s).rows;
}

}  // namespace

Result<RandomSpec> parse_random_spec(std::string_view spec) {
  const size_t question = std::min(spec.find('?'), spec.size());
  if (spec.substr(0, question) != "v41") {
    return invalid_argument(fmt::format(
        "-m random: unknown architecture '{}'; v41 is there, as in random:v41?layers=4&experts=96", spec.substr(0, question)));
  }
  RandomSpec out{.shape = release_sizes()};
  Choices choices;
  const auto keys = spec_keys(out.shape, choices);
  std::string_view rest = spec.substr(std::min(question + 1, spec.size()));
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const size_t equals = item.find('=');
    if (equals == item.npos) return invalid_argument(fmt::format("-m random: '{}' is not of the form key=value", item));
    DI_CHECK_OK(set_key(item.substr(0, equals), item.substr(equals + 1), keys));
  }
  ModelShape& shape = out.shape;
  constexpr int32_t kMaxLayers = 1024, kMaxStages = 16;
  if (shape.layers < 1 || shape.layers > kMaxLayers)
    return invalid_argument(fmt::format("-m random: layers must be between 1 and {}", kMaxLayers));
  if (shape.draft_stages < 0 || shape.draft_stages > kMaxStages)
    return invalid_argument(fmt::format("-m random: draft must be between 0 and {}", kMaxStages));
  if (shape.vocab < 8) return invalid_argument("-m random: vocab must be at least 8");
  out.seed = choices.seed;
  random_layer_plan(shape);
  place_ids(shape);
  shape.draft_experts = choices.draft_experts >= 0 ? choices.draft_experts : std::max(1, shape.experts / 3);
  shape.draft_experts_per_token = std::min(shape.draft_experts_per_token, shape.draft_experts);
  shape.experts_per_token = std::min(shape.experts_per_token, shape.experts);
  size_engram(shape, choices.engram_rows);
  if (choices.vision_layers > 0) shape.vision = vision_shape(choices.vision_layers, choices.vision_hidden);
  DI_CHECK_OK(finish_model_shape(shape, "-m random"));
  return out;
}

}  // namespace deepinfer
