#include "model/random_checkpoint.h"

#include <algorithm>

#include <cmath>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/machine.h"
#include "model/config.h"
#include "model/weights.h"

namespace deepinfer {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPiece = size_t{1} << 20;  // bytes one thread generates at a time

// splitmix64's finaliser: word i of stream `key` is mix(key + i * golden ratio), so any piece can be made on its own.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
uint64_t word_at(uint64_t key, uint64_t index) { return mix(key + index * 0x9e3779b97f4a7c15u); }

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed + 0x9e3779b97f4a7c15u);
  for (const char c : name) key = mix(key ^ static_cast<uint8_t>(c));
  return key;
}

// How the bytes of one tensor are drawn.
struct Recipe {
  enum class Kind { kCodes, kNibbles, kScales, kBf16, kF32 } kind = Kind::kBf16;
  uint64_t key = 0;
  uint8_t exponent = 127;       // kScales: the larger of two neighbouring codes
  float centre = 0, reach = 0;  // kBf16, kF32: uniform in centre +- reach
};

// e4m3 codes as drawn below have RMS 0.85, FP4 codes 2.9; a weight of K inputs wants RMS 1/sqrt(K), so that a row of unit
// RMS comes out with unit RMS.
uint8_t scale_code(double code_rms, double wanted_rms) {
  const double exponent = std::floor(std::log2(wanted_rms / code_rms) + 0.5) + 127;
  return static_cast<uint8_t>(std::clamp(exponent, 1.0, 200.0));
}

bool is_expert(std::string_view name) { return name.find(".experts.") != name.npos; }

// Uniform values whose RMS is `rms`.
float reach_for(double rms) { return static_cast<float>(rms * 1.7320508); }

void value_recipe(const TensorSpec& spec, Recipe& out) {
  const std::string_view name = spec.name;
  const auto ends = [&](std::string_view tail) { return name.ends_with(tail); };
  const double per_input = 1 / std::sqrt(static_cast<double>(spec.shape.back()));
  if (ends("_norm.weight") || ends("norm.weight") || ends("norm1.weight") || ends("norm2.weight") || ends("q_weight") ||
      ends("k_weight")) {
    out.centre = 1;
    out.reach = 0.125f;
  } else if (name == "embed.weight" || ends("markov_head.embed.weight") || name.starts_with("image_")) {
    out.reach = reach_for(1);
  } else if (name == "head.weight") {
    out.reach = reach_for(3 * per_input);  // logits of standard deviation 3: neither uniform nor one-hot
  } else if (ends("_scale")) {
    out.centre = 0.5f;
    out.reach = 0.125f;
  } else if (ends("_base") || ends("attn_sink")) {
    out.reach = 0.5f;
  } else if (ends("gate.bias") || ends("gate.bias_vl") || ends(".bias")) {
    out.reach = 0.0625f;
  } else {
    out.reach = reach_for(per_input);
  }
}

Recipe recipe_of(const TensorSpec& spec, uint64_t seed) {
  Recipe out;
  out.key = key_of(seed, spec.name);
  switch (spec.type) {
    case TensorType::kF8E4m3: out.kind = Recipe::Kind::kCodes; break;
    case TensorType::kI8: out.kind = Recipe::Kind::kNibbles; break;
    case TensorType::kF8E8m0: {
      out.kind = Recipe::Kind::kScales;
      const double inputs = static_cast<double>(spec.shape.back()) * 32;
      const bool table = spec.name.ends_with("engram.embed.scale");
      out.exponent = scale_code(is_expert(spec.name) ? 2.9 : 0.85, table ? 1 : 1 / std::sqrt(inputs));
      break;
    }
    case TensorType::kF32:
      out.kind = Recipe::Kind::kF32;
      value_recipe(spec, out);
      break;
    default:
      out.kind = Recipe::Kind::kBf16;
      value_recipe(spec, out);
      break;
  }
  return out;
}

// 16 random bits as a value of [-1, 1).
float signed_unit(uint64_t bits) { return static_cast<float>(static_cast<int16_t>(bits & 0xFFFF)) * 0x1p-15f; }

// Fills [begin, end) with the words `draw` gives for 64 random bits; begin is a multiple of 8. One loop per kind, so that
// the compiler can vectorise each.
template <class Draw>
void fill_words(uint64_t key, uint8_t* data, size_t begin, size_t end, Draw draw) {
  size_t at = begin;
  for (; at + 8 <= end; at += 8) {
    const uint64_t word = draw(word_at(key, at / 8));
    std::memcpy(data + at, &word, 8);
  }
  if (at == end) return;
  const uint64_t word = draw(word_at(key, at / 8));
  std::memcpy(data + at, &word, end - at);
}

void generate(const Recipe& recipe, uint8_t* data, size_t begin, size_t end) {
  const auto value = [centre = recipe.centre, reach = recipe.reach](uint64_t bits) { return centre + reach * signed_unit(bits); };
  const auto bf16_at = [&](uint64_t word, int shift) { return uint64_t{to_bf16(value(word >> shift)).bits} << shift; };
  switch (recipe.kind) {
    case Recipe::Kind::kNibbles: return fill_words(recipe.key, data, begin, end, [](uint64_t word) { return word; });
    case Recipe::Kind::kCodes:
      // Sign, two exponent bits from 4 on, mantissa: magnitudes 0.125 to 1.875, never NaN.
      return fill_words(recipe.key, data, begin, end,
                        [](uint64_t word) { return (word & 0x9F9F9F9F9F9F9F9Fu) + 0x2020202020202020u; });
    case Recipe::Kind::kScales:
      return fill_words(recipe.key, data, begin, end, [top = recipe.exponent * 0x0101010101010101u](uint64_t word) {
        return top - (word & 0x0101010101010101u);
      });
    case Recipe::Kind::kBf16:
      return fill_words(recipe.key, data, begin, end, [&](uint64_t word) {
        return bf16_at(word, 0) | bf16_at(word, 16) | bf16_at(word, 32) | bf16_at(word, 48);
      });
    case Recipe::Kind::kF32:
      return fill_words(recipe.key, data, begin, end,
                        [&](uint64_t word) { return uint64_t{float_bits(value(word >> 32))} << 32 | float_bits(value(word)); });
  }
}

struct FreeMemory {
  void operator()(uint8_t* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
};

Result<std::shared_ptr<uint8_t>> allocate(size_t bytes, std::string_view spec) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  const int64_t available = available_memory();
  if (available >= 0 && static_cast<int64_t>(bytes) > available) {
    return exhausted(
        fmt::format("-m random:{} takes {:.1f} GiB, {:.1f} GiB are available; ask for fewer layers, experts or engram_rows", spec,
                    gib, static_cast<double>(available) / (1 << 30)));
  }
  auto* memory = static_cast<uint8_t*>(::operator new[](bytes, std::align_val_t{kAlignment}, std::nothrow));
  if (!memory) return exhausted(fmt::format("-m random:{} takes {:.1f} GiB, which the system does not give", spec, gib));
  return std::shared_ptr<uint8_t>(memory, FreeMemory());
}

// A part of one tensor: what one thread generates at a time.
struct Piece {
  size_t tensor, begin, end;
};

struct Layout {
  std::vector<TensorSpec> specs;
  std::vector<size_t> offsets, sizes;
  std::vector<Piece> pieces;
  size_t bytes = 0;
};

Layout lay_out(const ModelShape& shape) {
  Layout out;
  out.specs = expected_tensors(shape);
  for (size_t t = 0; t < out.specs.size(); ++t) {
    size_t size = tensor_type_bytes(out.specs[t].type);
    for (const int64_t dim : out.specs[t].shape) size *= static_cast<size_t>(dim);
    out.offsets.push_back(out.bytes);
    out.sizes.push_back(size);
    for (size_t at = 0; at < size; at += kPiece) out.pieces.push_back({t, at, std::min(size, at + kPiece)});
    out.bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return out;
}

void fill(const Layout& layout, uint64_t seed, uint8_t* memory, ThreadPool& pool, const LoadProgress& progress) {
  std::vector<Recipe> recipes;
  for (const TensorSpec& spec : layout.specs) recipes.push_back(recipe_of(spec, seed));
  // In rounds, so that progress is told from the calling thread.
  constexpr size_t kRound = 1024;
  for (size_t first = 0; first < layout.pieces.size(); first += kRound) {
    const size_t count = std::min(kRound, layout.pieces.size() - first);
    pool.run(static_cast<int64_t>(count), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece& piece = layout.pieces[first + static_cast<size_t>(i)];
        generate(recipes[piece.tensor], memory + layout.offsets[piece.tensor], piece.begin, piece.end);
      }
    });
    if (progress && first + count < layout.pieces.size()) {
      const Piece& next = layout.pieces[first + count];
      progress(static_cast<int64_t>(layout.offsets[next.tensor] + next.begin), static_cast<int64_t>(layout.bytes));
    }
  }
  if (progress) progress(static_cast<int64_t>(layout.bytes), static_cast<int64_t>(layout.bytes));
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> make_random_checkpoint(std::string_view spec, ThreadPool& pool,
                                                                 const LoadProgress& progress) {
  DI_TRY(const RandomSpec parsed, parse_random_spec(spec));
  const Layout layout = lay_out(parsed.shape);
  DI_TRY(const std::shared_ptr<uint8_t> memory, allocate(layout.bytes, spec));
  fill(layout, parsed.seed, memory.get(), pool, progress);
  std::vector<TensorView> tensors;
  tensors.reserve(layout.specs.size());
  for (size_t t = 0; t < layout.specs.size(); ++t) {
    TensorView view;
    view.name = layout.specs[t].name;
    view.type = layout.specs[t].type;
    view.shape = layout.specs[t].shape;
    view.data = {memory.get() + layout.offsets[t], layout.sizes[t]};
    tensors.push_back(std::move(view));
  }
  return Checkpoint::in_memory(fmt::format("random:{}", spec), model_config_text(parsed.shape), std::move(tensors), memory);
}

}  // namespace deepinfer
