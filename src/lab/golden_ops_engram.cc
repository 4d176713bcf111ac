// Operator goldens of Engram hashing and mixing.
#include <algorithm>

#include "lab/golden_ops.h"

namespace deepinfer {
namespace {

constexpr double kEqualShare = 0.999;

// Hash rows of one sequence at positions 0.. of slot 0, as [rows, layers, columns].
struct HashCase {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> is_image;
  std::vector<int32_t> token_map;
  std::vector<int64_t> multipliers, primes, offsets;
  int32_t layers, ngram, heads, pad;
};

Result<std::vector<int64_t>> hash_rows(Device& device, const HashCase& c) {
  const auto n = static_cast<int64_t>(c.tokens.size());
  const int64_t columns = int64_t{c.ngram - 1} * c.heads;
  CaseMemory m(device);
  std::vector<int32_t> positions(c.tokens.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  EngramHashParams p = {};
  p.rows = m.rows(n);
  p.tokens = m.put(c.tokens);
  p.is_image = m.put(c.is_image);
  p.slots = m.room<int32_t>(n);
  p.positions = m.put(positions);
  p.write = m.room<uint8_t>(n);
  p.token_map = m.put(c.token_map);
  p.ring_slots = 64;
  p.state_bytes = p.ring_slots * 4;
  p.states = m.room<uint8_t>(p.state_bytes);
  p.multipliers = m.put(c.multipliers);
  p.primes = m.put(c.primes);
  p.offsets = m.put(c.offsets);
  p.hash_rows = m.room<int64_t>(c.layers * n * columns);
  p.num_layers = c.layers;
  p.ngram = c.ngram;
  p.heads = c.heads;
  p.pad = c.pad;
  DI_CHECK_OK(m.ready());
  device.ops().engram_hash(p);
  const auto by_layer = m.get(p.hash_rows, c.layers * n * columns);
  DI_CHECK_OK(m.ready());
  std::vector<int64_t> out;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t l = 0; l < c.layers; ++l) {
      const auto* from = &by_layer[static_cast<size_t>((l * n + r) * columns)];
      out.insert(out.end(), from, from + columns);
    }
  }
  return out;
}

template <class T>
std::vector<int64_t> widened(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace

Status OpsGoldens::run_engram_hash() {
  return run_case(
      {"engram_hash.ids", "engram_hash.text_mask", "engram_hash.rows", "engram.token_map", "engram.multipliers", "engram.primes",
       "engram.offsets", "engram.pad"},
      [&]() -> Status {
        const int64_t n = dim("engram_hash.ids", 0), layers = dim("engram.multipliers", 0);
        DI_TRY(const auto ids, file_.typed<int32_t>("engram_hash.ids"));
        DI_TRY(const auto text, file_.typed<uint8_t>("engram_hash.text_mask", {n}));
        DI_TRY(const auto map, file_.typed<int32_t>("engram.token_map", {shape_.vocab}));
        DI_TRY(const auto multipliers, file_.typed<int64_t>("engram.multipliers", {layers, shape_.engram_ngram}));
        DI_TRY(const auto primes, file_.typed<int32_t>("engram.primes", {layers, shape_.engram_ngram - 1, shape_.engram_heads}));
        DI_TRY(const auto offsets, file_.typed<int32_t>("engram.offsets", {layers, shape_.engram_columns()}));
        DI_TRY(const auto pad, file_.typed<int32_t>("engram.pad", {1}));
        DI_TRY(const auto want, file_.typed<int32_t>("engram_hash.rows", {n, layers, shape_.engram_columns()}));
        HashCase c = {{ids.begin(), ids.end()},
                      {},
                      {map.begin(), map.end()},
                      widened(multipliers),
                      widened(primes),
                      widened(offsets),
                      static_cast<int32_t>(layers),
                      shape_.engram_ngram,
                      shape_.engram_heads,
                      pad[0]};
        for (const uint8_t is_text : text) c.is_image.push_back(!is_text);
        DI_TRY(const auto got, hash_rows(device_, c));
        check_equal<int64_t>(got, widened(want), "engram_hash.rows");
        return {};
      });
}

// Release sizes with ids that are mapped already; -1 is a dead one.
Status OpsGoldens::run_engram_release() {
  return run_case({"engram_release.compressed_ids", "engram_release.multipliers", "engram_release.primes",
                   "engram_release.offsets", "engram_release.rows", "engram.pad"},
                  [&]() -> Status {
                    const int64_t n = dim("engram_release.compressed_ids", 0), layers = dim("engram_release.primes", 0);
                    const int64_t lengths = dim("engram_release.primes", 1), heads = dim("engram_release.primes", 2);
                    DI_TRY(const auto ids, file_.typed<int32_t>("engram_release.compressed_ids"));
                    DI_TRY(const auto multipliers, file_.typed<int64_t>("engram_release.multipliers", {layers, lengths + 1}));
                    DI_TRY(const auto primes, file_.typed<int32_t>("engram_release.primes"));
                    DI_TRY(const auto offsets, file_.typed<int64_t>("engram_release.offsets", {layers, lengths * heads}));
                    DI_TRY(const auto want, file_.typed<int64_t>("engram_release.rows", {n, layers, lengths * heads}));
                    DI_TRY(const auto pad, file_.typed<int32_t>("engram.pad", {1}));
                    HashCase c = {{},
                                  {},
                                  {},
                                  widened(multipliers),
                                  widened(primes),
                                  widened(offsets),
                                  static_cast<int32_t>(layers),
                                  static_cast<int32_t>(lengths + 1),
                                  static_cast<int32_t>(heads),
                                  pad[0]};
                    for (const int32_t id : ids) {
                      c.is_image.push_back(id < 0);
                      c.tokens.push_back(static_cast<int32_t>(c.token_map.size()));
                      c.token_map.push_back(id);
                    }
                    DI_TRY(const auto got, hash_rows(device_, c));
                    check_equal<int64_t>(got, want, "engram_release.rows");
                    return {};
                  });
}

// layer = "layers.1": gather, key/value product, gated mixing; the ids are those of engram_hash.
Status OpsGoldens::run_engram_module(const std::string& layer) {
  const std::string id = "engram/" + layer;
  return run_case({id + "/X", id + "/Y", id + "/rows_dequant", "engram_hash.rows", "engram_hash.text_mask"}, [&]() -> Status {
    const int64_t n = dim(id + "/X", 0), s = shape_.streams, d = shape_.hidden, columns = shape_.engram_columns(),
                  width = shape_.engram_dim;
    const auto layers = static_cast<int64_t>(shape_.engram_layers.size());
    int64_t index = -1;
    for (size_t i = 0; i < shape_.engram_layers.size(); ++i) {
      if (layer == "layers." + std::to_string(shape_.engram_layers[i])) index = static_cast<int64_t>(i);
    }
    const TensorView* codes = checkpoint_->find(layer + ".engram.embed.weight");
    const TensorView* scales = checkpoint_->find(layer + ".engram.embed.scale");
    if (index < 0 || !codes || !scales) return not_found(id + " is not an Engram layer of " + checkpoint_->path());
    DI_TRY(const auto x, file_.typed<Bf16>(id + "/X", {n, s, d}));
    DI_TRY(const auto want, file_.typed<Bf16>(id + "/Y", {n, s, d}));
    DI_TRY(const auto want_rows, file_.typed<Bf16>(id + "/rows_dequant", {n, columns, width}));
    DI_TRY(const auto all_rows, file_.typed<int32_t>("engram_hash.rows", {n, layers, columns}));
    DI_TRY(const auto text, file_.typed<uint8_t>("engram_hash.text_mask", {n}));
    DI_TRY(const auto q_weight, weight<Bf16>(layer + ".engram.q_weight", {s, d}));
    DI_TRY(const auto k_weight, weight<Bf16>(layer + ".engram.k_weight", {s, d}));
    DI_TRY(const Matrix wkv, matrix(layer + ".engram.wkv"));
    std::vector<int64_t> rows;
    std::vector<uint8_t> image;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < columns; ++c) rows.push_back(all_rows[static_cast<size_t>((r * layers + index) * columns + c)]);
      image.push_back(!text[static_cast<size_t>(r)]);
    }
    CaseMemory m(device_);
    auto* e = m.room<Bf16>(n * columns * width);
    const EngramGatherParams gather = {m.rows(n),
                                       m.put(rows),
                                       m.put(codes->data),
                                       m.put(scales->data),
                                       e,
                                       static_cast<int32_t>(columns),
                                       static_cast<int32_t>(width)};
    DI_CHECK_OK(m.ready());
    ops_.engram_gather(gather);
    check_equal<Bf16>(m.get(e, n * columns * width), want_rows, id + "/rows_dequant");
    const auto* kvv = product<Bf16>(m, e, n, wkv, true);
    const EngramMixParams mix = {gather.rows, kvv,     m.put(q_weight),         m.put(k_weight),         m.put(image),
                                 m.put(x),    nullptr, static_cast<int32_t>(d), static_cast<int32_t>(s), shape_.rms_eps};
    DI_CHECK_OK(m.ready());
    ops_.engram_mix(mix);
    check_bf16(m.get(mix.x, n * s * d), want, 1, kEqualShare, id + "/Y");
    return m.ready();
  });
}

}  // namespace deepinfer
