// Operator goldens of compressor, indexer, attention and the vision tower's parts.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lab/error_metrics.h"
#include "lab/golden_ops.h"
#include "model/v41_model.h"
#include "ops/portable/quant.h"

namespace deepinfer {
namespace {

constexpr double kEqualShare = 0.999;
constexpr double kCodesEqual = 0.98;     // stored rows behind a product
constexpr double kAttentionRms = 3e-3;   // with at most 2 BF16 ulp
constexpr double kScoreRelative = 1e-5;  // FP32 scores in another order of additions
constexpr double kSelectMargin = 0.01;   // of a row's score deviation (model.md section 16)
constexpr double kVisionBlockRms = 5e-3, kAlignerRms = 1e-2;

std::vector<float> floats(std::span<const Bf16> values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](Bf16 v) { return to_float(v); });
  return out;
}

std::vector<int32_t> counting(int64_t n, int32_t first = 0) {
  std::vector<int32_t> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = first + static_cast<int32_t>(i);
  return out;
}

double share_equal(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  size_t equal = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) equal += a[i] == b[i];
  return b.empty() ? 1 : static_cast<double>(equal) / static_cast<double>(std::max(a.size(), b.size()));
}

// The largest error in BF16 ulps of the largest value of its head: outputs are sums with cancellation, and even an FP64
// softmax is hundreds of its own ulps from the golden where they are nearly zero.
double worst_in_ulps(std::span<const float> got, std::span<const float> want, size_t width) {
  double worst = 0;
  for (size_t at = 0; at < want.size(); at += width) {
    float top = 0;
    for (size_t i = at; i < at + width; ++i) top = std::max(top, std::abs(want[i]));
    const double ulp = top > 0 ? std::ldexp(1.0, std::ilogb(top) - 7) : 1e-30;
    worst = std::max(worst, max_error(got.subspan(at, width), want.subspan(at, width)) / ulp);
  }
  return worst;
}

// One page that holds everything, for tests of a single sequence.
PageView single_page(CaseMemory& m, int64_t entries, int32_t ratio, int32_t head_dim, int32_t index_dim) {
  PageView view = {};
  view.section = {0, ratio, static_cast<int32_t>(entries), 0, entries * head_dim / 2, 0, 0};
  view.section.index_codes = view.section.main_scales + entries * head_dim / 16;
  view.section.index_scales = view.section.index_codes + entries * index_dim / 2;
  view.page_bytes = view.section.index_scales + entries * index_dim / 32;
  view.pages = m.room<uint8_t>(view.page_bytes);
  view.table = m.room<int32_t>(1);
  view.table_stride = 1;
  view.head_dim = head_dim;
  view.index_dim = index_dim;
  return view;
}

}  // namespace

// Product, pooling (ratio 2) and norm against the latent; the page writer from the golden's own latent.
Status OpsGoldens::run_compressor(const std::string& layer) {
  const std::string id = "compressor/" + layer, weights = layer + ".attn.compressor.";
  const size_t number = layer.rfind('.');
  const auto l = static_cast<size_t>(std::strtol(layer.c_str() + (number == std::string::npos ? 0 : number + 1), nullptr, 10));
  if (l >= shape_.plan.size() || shape_.plan[l].ratio == 0) return not_found(id + " is not a compressed layer");
  return run_case(
      {id + "/u", id + "/latent", id + "/kv_packed", id + "/kv_scales", id + "/key_packed", id + "/key_scales"}, [&]() -> Status {
        const int32_t ratio = shape_.plan[l].ratio, hd = shape_.head_dim, id_dim = shape_.index_dim;
        const int64_t n = dim(id + "/u", 0), entries = n / ratio;
        DI_TRY(const Matrix wkv, matrix(weights + "wkv"));
        DI_TRY(const Matrix wk, matrix(layer + ".attn.indexer.wk"));
        DI_TRY(const auto norm, weight<Bf16>(weights + "norm.weight", {hd}));
        DI_TRY(const auto k_norm, weight<Bf16>(layer + ".attn.indexer.k_norm.weight", {id_dim}));
        DI_TRY(const auto u, file_.typed<Bf16>(id + "/u", {n, shape_.hidden}));
        DI_TRY(const auto latent, file_.typed<Bf16>(id + "/latent", {entries, hd}));
        DI_TRY(const auto kv_packed, file_.typed<uint8_t>(id + "/kv_packed", {entries, hd / 2}));
        DI_TRY(const auto kv_scales, file_.typed<uint8_t>(id + "/kv_scales", {entries, hd / 16}));
        DI_TRY(const auto key_packed, file_.typed<uint8_t>(id + "/key_packed", {entries, id_dim / 2}));
        DI_TRY(const auto key_scales, file_.typed<uint8_t>(id + "/key_scales", {entries, id_dim / 32}));
        CaseMemory m(device_);
        const Rows rows = m.rows(n);
        const Bf16* in = m.put(u);
        auto* slots = m.room<int32_t>(n);
        auto* positions = m.put(counting(n));
        Bf16* raw = nullptr;
        if (ratio == 2) {
          DI_TRY(const Matrix wgate, matrix(weights + "wgate"));
          const auto* value = product<float>(m, in, n, wkv, false);
          const auto* gate = product<float>(m, in, n, wgate, false);
          raw = m.room<Bf16>(n * hd);
          const int64_t state = int64_t{kTailSlots} * 2 * hd * 4;
          const PoolPairsParams pool = {rows, value, gate, slots, positions, m.room<uint8_t>(state), state, 0, raw, hd};
          DI_CHECK_OK(m.ready());
          ops_.pool_pairs(pool);
        } else {
          raw = product<Bf16>(m, in, n, wkv, false);
        }
        const RmsNormParams rms = {rows, raw, m.put(norm), m.room<Bf16>(n * hd), hd, hd, shape_.rms_eps};
        DI_CHECK_OK(m.ready());
        ops_.rms_norm(rms);
        const auto normed = m.get(rms.y, n * hd);
        std::vector<Bf16> got, spread(static_cast<size_t>(n * hd), Bf16{0});
        for (int64_t j = 0; j < entries; ++j) {
          const int64_t at = (j * ratio + ratio - 1) * hd;
          got.insert(got.end(), normed.begin() + at, normed.begin() + at + hd);
          std::copy_n(latent.begin() + j * hd, hd, spread.begin() + at);
        }
        check_bf16(got, latent, 1, kEqualShare, id + "/latent");
        WriteEntriesParams write = {};
        write.rows = rows;
        write.latent = m.put(spread);
        write.key = product<Bf16>(m, write.latent, n, wk, false);
        write.key_norm = m.put(k_norm);
        write.freq = m.put(rope_frequencies(shape_.rope_dim, shape_.compress_rope_theta, &shape_.yarn));
        write.slots = slots;
        write.positions = positions;
        write.view = single_page(m, entries, ratio, hd, id_dim);
        write.rope_dim = shape_.rope_dim;
        write.eps = shape_.rms_eps;
        DI_CHECK_OK(m.ready());
        ops_.write_entries(write);
        const PageSection& at = write.view.section;
        check_equal<uint8_t>(m.get(write.view.pages + at.main_codes, entries * hd / 2), kv_packed, id + "/kv_packed");
        check_equal<uint8_t>(m.get(write.view.pages + at.main_scales, entries * hd / 16), kv_scales, id + "/kv_scales");
        const double keys = share_equal(m.get(write.view.pages + at.index_codes, entries * id_dim / 2), key_packed);
        const double scales = share_equal(m.get(write.view.pages + at.index_scales, entries * id_dim / 32), key_scales);
        check(std::min(keys, scales) >= kCodesEqual, id + "/key",
              fmt::format("{:.4f} of codes, {:.4f} of scales equal", keys, scales));
        return m.ready();
      });
}

Status OpsGoldens::run_indexer() {
  return run_case({"indexer.q", "indexer.k", "indexer.w", "indexer.n_vis", "indexer.blocks", "indexer.candidates",
                   "indexer.score_f32", "indexer.sel", "indexer.sel_in_candidates"},
                  [&]() -> Status {
                    const int64_t n = dim("indexer.q", 0), heads = dim("indexer.q", 1), width = dim("indexer.q", 2),
                                  entries = dim("indexer.k", 0);
                    const int64_t top_k = dim("indexer.sel", 1), inside_k = dim("indexer.sel_in_candidates", 1);
                    const int32_t block = shape_.candidate_block;
                    DI_TRY(const auto q, file_.typed<Bf16>("indexer.q"));
                    DI_TRY(const auto k, file_.typed<Bf16>("indexer.k", {entries, width}));
                    DI_TRY(const auto w, file_.typed<Bf16>("indexer.w", {n, heads}));
                    DI_TRY(const auto n_vis, file_.typed<int32_t>("indexer.n_vis", {n}));
                    DI_TRY(const auto blocks, file_.typed<int32_t>("indexer.blocks", {1}));
                    DI_TRY(const auto candidates, file_.typed<uint8_t>("indexer.candidates", {n, entries}));
                    DI_TRY(const auto scores, file_.typed<float>("indexer.score_f32", {n, entries}));
                    DI_TRY(const auto sel, file_.typed<int32_t>("indexer.sel", {n, top_k}));
                    DI_TRY(const auto inside, file_.typed<int32_t>("indexer.sel_in_candidates", {n, inside_k}));
                    CaseMemory m(device_);
                    SelectParams p = {};
                    p.view = single_page(m, entries, 1, 32, static_cast<int32_t>(width));
                    // The keys are values of the format already; packing them again is exact.
                    std::vector<uint8_t> page(static_cast<size_t>(p.view.page_bytes));
                    for (int64_t b = 0; b < entries * width / 32; ++b) {
                      float values[32];
                      uint8_t nibbles[32];
                      load_bf16(&k[static_cast<size_t>(b * 32)], 32, values);
                      page[static_cast<size_t>(p.view.section.index_scales + b)] = quantize_q4e8(values, nibbles);
                      pack_nibbles(nibbles, 32, &page[static_cast<size_t>(p.view.section.index_codes + b * 16)]);
                    }
                    p.view.pages = m.put(page);
                    p.rows = m.rows(n);
                    p.q = m.put(q);
                    p.w = m.put(w);
                    p.slots = m.room<int32_t>(n);
                    std::vector<int32_t> positions(n_vis.begin(), n_vis.end());
                    for (int32_t& position : positions) --position;
                    p.positions = m.put(positions);
                    p.mode = SelectMode::kPublishCandidates;
                    p.selected = m.room<int32_t>(n * top_k);
                    p.candidate_blocks = blocks[0];
                    p.candidate_block = block;
                    p.candidates = m.room<int32_t>(n * p.candidate_blocks);
                    p.scratch_rows = device_.parallelism();
                    p.max_entries = entries;
                    p.score_scratch = m.room<float>(p.scratch_rows * entries);
                    p.scores_out = m.room<float>(n * entries);
                    p.heads = static_cast<int32_t>(heads);
                    p.top_k = static_cast<int32_t>(top_k);
                    DI_CHECK_OK(m.ready());
                    ops_.select(p);

                    const auto got = m.get(p.scores_out, n * entries);
                    std::vector<float> mine, theirs;
                    std::vector<uint8_t> blocks_mask(candidates.size());
                    bool visibility = true;
                    const auto cand = m.get(p.candidates, n * p.candidate_blocks);
                    for (int64_t r = 0; r < n; ++r) {
                      for (int64_t j = 0; j < entries; ++j) {
                        const auto at = static_cast<size_t>(r * entries + j);
                        const bool visible = j < n_vis[static_cast<size_t>(r)];
                        visibility &= std::isfinite(got[at]) == visible;
                        if (visible) mine.push_back(got[at]), theirs.push_back(scores[at]);
                        const auto* row = &cand[static_cast<size_t>(r * p.candidate_blocks)];
                        blocks_mask[at] = std::find(row, row + p.candidate_blocks, j / block) != row + p.candidate_blocks;
                      }
                    }
                    check(visibility, "indexer.n_vis", "visible entries differ");
                    check_below(relative_rms(mine, theirs), kScoreRelative, "indexer.score_f32");
                    check_equal<uint8_t>(blocks_mask, candidates, "indexer.candidates");

                    // A selection is right if no chosen score is below the golden's cut by more than the margin, none left out
                    // above it.
                    const auto check_selection = [&](std::span<const int32_t> chosen, std::span<const int32_t> want,
                                                     int64_t width_k, bool within, const char* id) {
                      int64_t wrong = 0;
                      for (int64_t r = 0; r < n; ++r) {
                        const float* row = &scores[static_cast<size_t>(r * entries)];
                        const auto visible = static_cast<size_t>(n_vis[static_cast<size_t>(r)]);
                        const double slack = kSelectMargin * standard_deviation({row, visible});
                        double cut = std::numeric_limits<double>::infinity();
                        const auto mine_k = chosen.subspan(static_cast<size_t>(r * width_k), static_cast<size_t>(width_k));
                        const auto want_k = want.subspan(static_cast<size_t>(r * width_k), static_cast<size_t>(width_k));
                        for (const int32_t j : want_k) {
                          if (j >= 0) cut = std::min(cut, double{row[j]});
                        }
                        wrong += std::count(mine_k.begin(), mine_k.end(), -1) != std::count(want_k.begin(), want_k.end(), -1);
                        for (size_t j = 0; j < visible; ++j) {
                          if (within && !candidates[static_cast<size_t>(r * entries) + j]) continue;
                          const bool taken = std::find(mine_k.begin(), mine_k.end(), static_cast<int32_t>(j)) != mine_k.end();
                          wrong += taken ? row[j] < cut - slack : row[j] > cut + slack;
                        }
                      }
                      check(wrong == 0, id, fmt::format("{} entries chosen or left out wrongly", wrong));
                    };
                    check_selection(m.get(p.selected, n * top_k), sel, top_k, false, "indexer.sel");
                    p.mode = SelectMode::kWithinCandidates;
                    p.top_k = static_cast<int32_t>(inside_k);
                    ops_.select(p);
                    check_selection(m.get(p.selected, n * inside_k), inside, inside_k, true, "indexer.sel_in_candidates");
                    return m.ready();
                  });
}

// Each query's slots become consecutive window rows of the step, in the golden's order.
Status OpsGoldens::run_attention() {
  return run_case({"attn.q", "attn.kv", "attn.idx", "attn.sink", "attn.o"}, [&]() -> Status {
    const int64_t n = dim("attn.q", 0), heads = dim("attn.q", 1), width = dim("attn.q", 2), entries = dim("attn.kv", 0),
                  slots = dim("attn.idx", 1);
    DI_TRY(const auto q, file_.typed<Bf16>("attn.q"));
    DI_TRY(const auto kv, file_.typed<Bf16>("attn.kv", {entries, width}));
    DI_TRY(const auto idx, file_.typed<int32_t>("attn.idx", {n, slots}));
    DI_TRY(const auto sink, file_.typed<Bf16>("attn.sink", {heads}));
    DI_TRY(const auto want, file_.typed<Bf16>("attn.o", {n, heads, width}));
    std::vector<uint8_t> codes, scales;
    std::vector<WindowSpan> spans;
    int32_t count = 0;
    for (int64_t r = 0; r < n; ++r) {
      WindowSpan span = {0, 0, count, count};
      for (int64_t i = 0; i < slots; ++i) {
        const int32_t j = idx[static_cast<size_t>(r * slots + i)];
        if (j < 0 || j >= entries) continue;
        for (int64_t b = 0; b < width / 32; ++b) {
          float values[32];
          uint8_t packed[32];
          load_bf16(&kv[static_cast<size_t>(j * width + b * 32)], 32, values);
          scales.push_back(quantize_q8(values, packed));
          codes.insert(codes.end(), packed, packed + 32);
        }
        span.batch_end = ++count;
      }
      spans.push_back(span);
    }
    CaseMemory m(device_);
    AttentionParams p = {};
    p.rows = m.rows(n);
    p.q = m.put(q);
    p.spans = m.put(spans);
    p.slots = m.room<int32_t>(n);
    p.batch_codes = m.put(codes);
    p.batch_scales = m.put(scales);
    p.states = m.room<uint8_t>(1);
    p.ring_slots = count + 1;  // spans hold no more (ops.h)
    p.sink = m.put(floats(sink));
    p.o = m.room<Bf16>(n * heads * width);
    p.heads = static_cast<int32_t>(heads);
    p.head_dim = static_cast<int32_t>(width);
    DI_CHECK_OK(m.ready());
    ops_.attention(p);
    const auto got = m.get(p.o, n * heads * width);
    check_below(worst_in_ulps(floats(got), floats(want), static_cast<size_t>(width)), 2, "attn.o ulp");
    check_below(relative_rms(floats(got), floats(want)), kAttentionRms, "attn.o rms");
    return m.ready();
  });
}

// ---- vision -------------------------------------------------------------------------------------------------------

namespace {

MatmulParams plain_product(const Rows& rows, const Bf16* x, const Matrix& w, const Bf16* bias, Bf16* y) {
  MatmulParams p = {};
  p.rows = rows;
  p.x = x;
  p.x_stride = w.k;
  p.w = w;
  p.groups = 1;
  p.bias = bias;
  p.y = y;
  p.y_type = OutputType::kBf16;
  p.y_stride = w.n;
  p.y_scale = 1.0f;
  return p;
}

}  // namespace

Status OpsGoldens::run_patch_embed(const SafetensorsFile& vision) {
  DI_TRY(const Matrix w, matrix("vision.patch_embed.proj"));
  DI_TRY(const auto bias, weight<Bf16>("vision.patch_embed.proj.bias", {w.n}));
  DI_TRY(const auto patches, vision.typed<Bf16>("patches"));
  const auto n = static_cast<int64_t>(patches.size()) / w.k;
  DI_TRY(const auto want, vision.typed<Bf16>("patch_embed", {n, w.n}));
  CaseMemory m(device_);
  auto* y = m.room<Bf16>(n * w.n);
  const MatmulParams p = plain_product(m.rows(n), m.put(patches), m.matrix(w), m.put(bias), y);
  DI_CHECK_OK(m.ready());
  ops_.matmul(p);
  check_below(relative_rms(floats(m.get(y, n * w.n)), floats(want)), kVisionBlockRms, "vision/patch_embed");
  return m.ready();
}

// Rotating (1, 0) gives (cos, sin), rounded to BF16.
Status OpsGoldens::run_vision_rope(const SafetensorsFile& vision) {
  DI_TRY(const auto grid, vision.typed<int32_t>("grid", {4}));
  const int64_t n = int64_t{grid[0]} * grid[1], hd = shape_.vision->hidden / shape_.vision->heads, half = hd / 2;
  DI_TRY(const auto cos, vision.typed<float>("rope_cos", {n, half}));
  DI_TRY(const auto sin, vision.typed<float>("rope_sin", {n, half}));
  std::vector<int32_t> places;
  std::vector<Bf16> qkv(static_cast<size_t>(n * 3 * hd), Bf16{0}), want;
  for (int64_t r = 0; r < n; ++r) {
    places.push_back(static_cast<int32_t>(r / grid[1]));
    places.push_back(static_cast<int32_t>(r % grid[1]));
    std::fill_n(qkv.begin() + r * 3 * hd, half, to_bf16(1.0f));
    for (int64_t i = 0; i < half; ++i) want.push_back(to_bf16(cos[static_cast<size_t>(r * half + i)]));
    for (int64_t i = 0; i < half; ++i) want.push_back(to_bf16(sin[static_cast<size_t>(r * half + i)]));
  }
  CaseMemory m(device_);
  const VisionRopeParams p = {
      m.rows(n), m.put(qkv), m.put(places), 1, static_cast<int32_t>(hd), static_cast<float>(shape_.vision->rope_theta)};
  DI_CHECK_OK(m.ready());
  ops_.vision_rope(p);
  const auto rotated = m.get(p.qkv, n * 3 * hd);
  std::vector<Bf16> got;
  for (int64_t r = 0; r < n; ++r) got.insert(got.end(), rotated.begin() + r * 3 * hd, rotated.begin() + r * 3 * hd + hd);
  check_bf16(got, want, 1, kEqualShare, "vision/rope");
  return m.ready();
}

Status OpsGoldens::run_aligner(const SafetensorsFile& vision) {
  DI_TRY(const auto grid, vision.typed<int32_t>("grid", {4}));
  DI_TRY(const Matrix w1, matrix("aligner.w1"));
  DI_TRY(const Matrix w2, matrix("aligner.w2"));
  DI_TRY(const auto b1, weight<Bf16>("aligner.w1.bias", {w1.n}));
  DI_TRY(const auto b2, weight<Bf16>("aligner.w2.bias", {w2.n}));
  const int64_t patches = int64_t{grid[0]} * grid[1], cells = int64_t{grid[2]} * grid[3];
  DI_TRY(const auto x, vision.typed<Bf16>("vit_out", {patches, shape_.vision->hidden}));
  DI_TRY(const auto want, vision.typed<Bf16>("aligner_out", {cells, w2.n}));
  CaseMemory m(device_);
  const UnfoldParams unfold = {m.put(x), m.room<Bf16>(cells * w1.k), grid[0],
                               grid[1],  shape_.vision->hidden,      shape_.vision->downsample};
  const MatmulParams first = plain_product(m.rows(cells), unfold.y, m.matrix(w1), m.put(b1), m.room<Bf16>(cells * w1.n));
  const PointwiseParams gelu = {first.rows, PointwiseKind::kGelu,       static_cast<const Bf16*>(first.y),
                                nullptr,    m.room<Bf16>(cells * w1.n), w1.n};
  const MatmulParams second = plain_product(first.rows, gelu.y, m.matrix(w2), m.put(b2), m.room<Bf16>(cells * w2.n));
  DI_CHECK_OK(m.ready());
  ops_.unfold(unfold);
  ops_.matmul(first);
  ops_.pointwise(gelu);
  ops_.matmul(second);
  check_below(relative_rms(floats(m.get(static_cast<const Bf16*>(second.y), cells * w2.n)), floats(want)), kAlignerRms,
              "vision/aligner");
  return m.ready();
}

}  // namespace deepinfer
