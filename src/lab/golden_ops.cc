#include "lab/golden_ops.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/file.h"
#include "lab/error_metrics.h"
#include "model/config.h"
#include "model/v41_model.h"

namespace deepinfer {
namespace {

// BF16 outputs of pointwise operations: one ulp, 99.9 % equal (goldens' README).
constexpr double kEqualShare = 0.999;
// FP32 rows against another order of additions.
constexpr double kLogitRelative = 1e-5;

std::string checkpoint_folder(const std::string& dir) {
  const auto names = list_directory(dir);
  if (!names) return {};
  for (const std::string& name : *names) {
    const std::string path = join_path(dir, name);
    if (is_directory(path) && file_exists(join_path(path, "config.json"))) return path;
  }
  return {};
}

// BF16 values on one line of integers: neighbours differ by one, zeros coincide.
int ordered(Bf16 v) { return v.bits & 0x8000 ? -(v.bits & 0x7FFF) : v.bits; }

}  // namespace

Matrix CaseMemory::matrix(const Matrix& host) {
  Matrix w = host;
  const int64_t count = int64_t{host.n} * host.k;
  const int64_t bytes = host.format == WeightFormat::kBf16 ? count * 2 : host.format == WeightFormat::kFp4 ? count / 2 : count;
  w.data = put(std::span(static_cast<const uint8_t*>(host.data), static_cast<size_t>(bytes)));
  const int64_t lines = host.format == WeightFormat::kFp4 ? host.n : (host.n + 31) / 32;
  if (host.scales) w.scales = put(std::span(host.scales, static_cast<size_t>(lines * host.k / 32)));
  return w;
}

Result<GoldenCounts> run_ops_goldens(const std::string& dir, Device& device) {
  DI_TRY(auto goldens, OpsGoldens::open(dir, device));
  DI_CHECK_OK(goldens->run());
  return goldens->counts();
}

Result<std::unique_ptr<OpsGoldens>> OpsGoldens::open(const std::string& dir, Device& device) {
  const std::string folder = checkpoint_folder(dir);
  if (folder.empty()) return not_found(fmt::format("{} holds no checkpoint folder beside golden/", dir));
  DI_TRY(SafetensorsFile file, SafetensorsFile::open(join_path(dir, "golden/ops.safetensors")));
  std::unique_ptr<OpsGoldens> goldens(new OpsGoldens(device, std::move(file)));
  goldens->golden_dir_ = join_path(dir, "golden");
  DI_TRY(goldens->checkpoint_, Checkpoint::open(folder));
  DI_TRY(goldens->shape_, parse_model_config(goldens->checkpoint_->config_text(), goldens->checkpoint_->config_path()));
  return goldens;
}

Status OpsGoldens::run() {
  const std::vector<float> plain = rope_frequencies(shape_.rope_dim, shape_.rope_theta, nullptr);
  const std::vector<float> yarn = rope_frequencies(shape_.rope_dim, shape_.compress_rope_theta, &shape_.yarn);
  DI_CHECK_OK(run_q8());
  DI_CHECK_OK(run_q4e8());
  DI_CHECK_OK(run_q4e4());
  for (const auto& name : cases("linear8/", "/x")) DI_CHECK_OK(run_linear8(name));
  for (const auto& name : cases("rmsnorm/", "/x")) DI_CHECK_OK(run_rmsnorm(name));
  DI_CHECK_OK(run_rope("plain", plain));
  DI_CHECK_OK(run_rope("yarn", yarn));
  DI_CHECK_OK(run_rope_release("plain"));
  DI_CHECK_OK(run_rope_release("yarn"));
  DI_CHECK_OK(run_head());
  DI_CHECK_OK(run_markov_confidence());
  DI_CHECK_OK(run_sinkhorn());
  for (const auto& name : cases("hc/", "/X")) DI_CHECK_OK(run_hyper(name));
  for (const auto& name : cases("router/", "/x")) DI_CHECK_OK(run_router(name));
  for (const auto& name : cases("moe/", "/y")) DI_CHECK_OK(run_moe(name));
  DI_CHECK_OK(run_swiglu());
  DI_CHECK_OK(run_engram_tables());
  DI_CHECK_OK(run_engram_hash());
  DI_CHECK_OK(run_engram_release());
  for (const auto& name : cases("engram/", "/X")) DI_CHECK_OK(run_engram_module(name));
  for (const auto& name : cases("compressor/", "/u")) DI_CHECK_OK(run_compressor(name));
  DI_CHECK_OK(run_indexer());
  DI_CHECK_OK(run_attention());
  const std::string path = join_path(golden_dir_, "vision.safetensors");
  if (!shape_.vision || !file_exists(path)) return {};
  DI_TRY(const SafetensorsFile vision, SafetensorsFile::open(path));
  DI_CHECK_OK(run_patch_embed(vision));
  DI_CHECK_OK(run_vision_rope(vision));
  return run_aligner(vision);
}

std::vector<std::string> OpsGoldens::cases(const std::string& prefix, const std::string& suffix) const {
  std::vector<std::string> names;
  for (const auto& tensor : file_.tensors()) {
    const std::string& name = tensor.name;
    if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    names.push_back(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
  }
  return names;
}

Result<Matrix> OpsGoldens::matrix(const std::string& name) const {
  const TensorView* tensor = checkpoint_->find(name + ".weight");
  if (!tensor || tensor->shape.size() != 2)
    return not_found(fmt::format("{} has no matrix {}.weight", checkpoint_->path(), name));
  Matrix w = {WeightFormat::kBf16, tensor->data.data(), nullptr, static_cast<int32_t>(tensor->shape[0]),
              static_cast<int32_t>(tensor->shape[1])};
  if (tensor->type == TensorType::kBf16) return w;
  const bool fp4 = tensor->type == TensorType::kI8;
  if (fp4) w.k *= 2;
  w.format = fp4 ? WeightFormat::kFp4 : WeightFormat::kF8Tile;
  const TensorView* scale = checkpoint_->find(name + ".scale");
  const int64_t lines = fp4 ? w.n : (w.n + 31) / 32;
  if (!scale || scale->elements() != lines * (w.k / 32))
    return not_found(fmt::format("{} has no fitting {}.scale", checkpoint_->path(), name));
  w.scales = scale->data.data();
  return w;
}

void OpsGoldens::check(bool holds, const std::string& id, const std::string& detail) {
  if (holds)
    counts_.pass();
  else
    counts_.fail("ops/" + id + ": " + detail);
}

void OpsGoldens::check_below(double value, double bound, const std::string& id) {
  check(value <= bound, id, fmt::format("{:.3g}, allowed {:.3g}", value, bound));
}

void OpsGoldens::check_bf16(std::span<const Bf16> got, std::span<const Bf16> want, int ulps, double share,
                            const std::string& id) {
  int worst = got.size() == want.size() ? 0 : 1 << 30;
  size_t equal = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const int distance = std::abs(ordered(got[i]) - ordered(want[i]));
    worst = std::max(worst, distance);
    equal += distance == 0;
  }
  const double part = want.empty() ? 1 : static_cast<double>(equal) / static_cast<double>(want.size());
  check(worst <= ulps && part >= share, id,
        fmt::format("{:.4f} equal, worst {} BF16 ulp; allowed {:.4f}, {}", part, worst, share, ulps));
}

Status OpsGoldens::run_q8() {
  return run_case({"q8.x", "q8.codes", "q8.scales"}, [&]() -> Status {
    const int64_t n = dim("q8.x", 0), width = dim("q8.x", 1);
    DI_TRY(const auto x, file_.typed<Bf16>("q8.x"));
    DI_TRY(const auto want_codes, file_.typed<uint8_t>("q8.codes", {n, width}));
    DI_TRY(const auto want_scales, file_.typed<uint8_t>("q8.scales", {n, width / 32}));
    CaseMemory m(device_);
    auto* codes = m.room<uint8_t>(n * width);
    auto* scales = m.room<uint8_t>(n * width / 32);
    const QuantizeParams p = {m.rows(n), m.put(x), codes, scales, static_cast<int32_t>(width)};
    DI_CHECK_OK(m.ready());
    ops_.quantize(p);
    check_equal<uint8_t>(m.get(codes, n * width), want_codes, "q8.codes");
    check_equal<uint8_t>(m.get(scales, n * width / 32), want_scales, "q8.scales");
    return m.ready();
  });
}

// Through the index query, whose result is the dequantised value; a rotary width of 0 rotates nothing.
Status OpsGoldens::run_q4e8() {
  return run_case({"q4e8.x", "q4e8.deq"}, [&]() -> Status {
    const int64_t n = dim("q4e8.x", 0), width = dim("q4e8.x", 1);
    DI_TRY(const auto x, file_.typed<Bf16>("q4e8.x"));
    DI_TRY(const auto want, file_.typed<Bf16>("q4e8.deq", {n, width}));
    CaseMemory m(device_);
    const IndexQueryParams p = {m.rows(n), m.put(x), m.room<float>(1), 1, static_cast<int32_t>(width), 0};
    DI_CHECK_OK(m.ready());
    ops_.index_query(p);
    check_equal<Bf16>(m.get(p.q, n * width), want, "q4e8.deq");
    return m.ready();
  });
}

// Through the page writer at ratio 1, every row an entry of one page.
Status OpsGoldens::run_q4e4() {
  return run_case({"q4e4.x", "q4e4.packed", "q4e4.scales"}, [&]() -> Status {
    const int64_t n = dim("q4e4.x", 0), width = dim("q4e4.x", 1), key = 32;
    DI_TRY(const auto x, file_.typed<Bf16>("q4e4.x"));
    DI_TRY(const auto want_codes, file_.typed<uint8_t>("q4e4.packed", {n, width / 2}));
    DI_TRY(const auto want_scales, file_.typed<uint8_t>("q4e4.scales", {n, width / 16}));
    CaseMemory m(device_);
    std::vector<int32_t> positions(static_cast<size_t>(n));
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
    WriteEntriesParams p = {};
    p.rows = m.rows(n);
    p.latent = m.put(x);
    p.key = m.room<Bf16>(n * key);
    p.key_norm = m.room<Bf16>(key);
    p.freq = m.room<float>(1);
    p.slots = m.room<int32_t>(n);
    p.positions = m.put(positions);
    p.eps = shape_.rms_eps;
    const int64_t scales_at = n * width / 2, keys_at = scales_at + n * width / 16, key_scales_at = keys_at + n * key / 2;
    p.view = {m.room<uint8_t>(key_scales_at + n),
              0,
              m.room<int32_t>(1),
              1,
              {0, 1, static_cast<int32_t>(n), 0, scales_at, keys_at, key_scales_at},
              static_cast<int32_t>(width),
              key};
    DI_CHECK_OK(m.ready());
    ops_.write_entries(p);
    check_equal<uint8_t>(m.get(p.view.pages, n * width / 2), want_codes, "q4e4.packed");
    check_equal<uint8_t>(m.get(p.view.pages + scales_at, n * width / 16), want_scales, "q4e4.scales");
    return m.ready();
  });
}

Status OpsGoldens::run_linear8(const std::string& name) {
  const std::string id = "linear8/" + name;
  return run_case({id + "/x", id + "/y"}, [&]() -> Status {
    DI_TRY(const Matrix w, matrix(name));
    const int64_t n = dim(id + "/x", 0);
    DI_TRY(const auto x, file_.typed<Bf16>(id + "/x", {n, w.k}));
    DI_TRY(const auto want, file_.typed<Bf16>(id + "/y", {n, w.n}));
    CaseMemory m(device_);
    const auto* y = product<Bf16>(m, m.put(x), n, w, true);
    DI_CHECK_OK(m.ready());
    check_bf16(m.get(y, n * w.n), want, 1, kEqualShare, id);
    return m.ready();
  });
}

Status OpsGoldens::run_rmsnorm(const std::string& name) {
  const std::string id = "rmsnorm/" + name;
  return run_case({id + "/x", id + "/y"}, [&]() -> Status {
    const int64_t n = dim(id + "/x", 0), width = dim(id + "/x", 1);
    DI_TRY(const auto x, file_.typed<Bf16>(id + "/x"));
    DI_TRY(const auto want, file_.typed<Bf16>(id + "/y", {n, width}));
    DI_TRY(const auto w, weight<Bf16>(name + ".weight", {width}));
    CaseMemory m(device_);
    auto* y = m.room<Bf16>(n * width);
    const RmsNormParams p = {m.rows(n), m.put(x), m.put(w), y, static_cast<int32_t>(width), width, shape_.rms_eps};
    DI_CHECK_OK(m.ready());
    ops_.rms_norm(p);
    check_bf16(m.get(y, n * width), want, 1, kEqualShare, id);
    return m.ready();
  });
}

// cos and sin tables within one FP32 ulp; the rotation itself within BF16 rounding.
Status OpsGoldens::run_rope(const std::string& table, std::span<const float> freq) {
  const std::string id = "rope." + table;
  return run_case({"rope.pos", id + ".x", id + ".cos", id + ".sin", id + ".fwd", id + ".inv_of_fwd"}, [&]() -> Status {
    const int64_t n = dim(id + ".x", 0), heads = dim(id + ".x", 1), width = dim(id + ".x", 2);
    const auto half = static_cast<int64_t>(freq.size());
    DI_TRY(const auto pos, file_.typed<int32_t>("rope.pos", {n}));
    DI_TRY(const auto x, file_.typed<Bf16>(id + ".x"));
    DI_TRY(const auto cos, file_.typed<float>(id + ".cos", {n, half}));
    DI_TRY(const auto sin, file_.typed<float>(id + ".sin", {n, half}));
    DI_TRY(const auto forward, file_.typed<Bf16>(id + ".fwd", {n, heads, width}));
    DI_TRY(const auto inverse, file_.typed<Bf16>(id + ".inv_of_fwd", {n, heads, width}));
    CaseMemory m(device_);
    auto* cos_sin = m.room<float>(n * half * 2);
    const RopeTableParams t = {m.rows(n), m.put(pos), m.put(freq), cos_sin, static_cast<int32_t>(half)};
    RopeParams p = {t.rows, m.put(x), cos_sin, static_cast<int32_t>(heads), static_cast<int32_t>(width), shape_.rope_dim, 0};
    DI_CHECK_OK(m.ready());
    ops_.rope_table(t);
    const auto got = m.get(cos_sin, n * half * 2);
    double worst = 0;
    for (size_t i = 0; i < cos.size(); ++i) {
      worst = std::max({worst, std::abs(double{got[2 * i]} - cos[i]), std::abs(double{got[2 * i + 1]} - sin[i])});
    }
    check_below(worst, 6e-8, id + ".table");
    ops_.rope(p);
    check_bf16(m.get(p.x, n * heads * width), forward, 1, kEqualShare, id + ".fwd");
    p.x = m.put(forward);
    p.inverse = 1;
    DI_CHECK_OK(m.ready());
    ops_.rope(p);
    check_bf16(m.get(p.x, n * heads * width), inverse, 1, kEqualShare, id + ".inv_of_fwd");
    return m.ready();
  });
}

Status OpsGoldens::run_rope_release(const std::string& table) {
  const std::string id = "rope_release." + table;
  return run_case({"rope_release.pos", id + ".freq", id + ".cos", id + ".sin"}, [&]() -> Status {
    const int64_t n = dim("rope_release.pos", 0), half = dim(id + ".freq", 0);
    DI_TRY(const auto pos, file_.typed<int32_t>("rope_release.pos"));
    DI_TRY(const auto freq, file_.typed<float>(id + ".freq"));
    DI_TRY(const auto cos, file_.typed<float>(id + ".cos", {n, half}));
    DI_TRY(const auto sin, file_.typed<float>(id + ".sin", {n, half}));
    // The release's rotary settings; its frequencies are part of the case.
    const YarnScaling release = {16, 32, 1, 65536};
    const auto mine = table == "yarn" ? rope_frequencies(static_cast<int32_t>(2 * half), 160000, &release)
                                      : rope_frequencies(static_cast<int32_t>(2 * half), 10000, nullptr);
    double off = 0;
    for (size_t i = 0; i < freq.size(); ++i) off = std::max(off, std::abs(double{mine[i]} / freq[i] - 1));
    check_below(off, 2.4e-7, id + ".freq");
    CaseMemory m(device_);
    auto* cos_sin = m.room<float>(n * half * 2);
    const RopeTableParams t = {m.rows(n), m.put(pos), m.put(freq), cos_sin, static_cast<int32_t>(half)};
    DI_CHECK_OK(m.ready());
    ops_.rope_table(t);
    const auto got = m.get(cos_sin, n * half * 2);
    double worst = 0;
    for (size_t i = 0; i < cos.size(); ++i) {
      worst = std::max({worst, std::abs(double{got[2 * i]} - cos[i]), std::abs(double{got[2 * i + 1]} - sin[i])});
    }
    check_below(worst, 6e-8, id + ".table");
    return m.ready();
  });
}

Status OpsGoldens::run_head() {
  return run_case({"head.x", "head.logits"}, [&]() -> Status {
    DI_TRY(const Matrix w, matrix("head"));
    const int64_t n = dim("head.x", 0);
    DI_TRY(const auto x, file_.typed<Bf16>("head.x", {n, w.k}));
    DI_TRY(const auto want, file_.typed<float>("head.logits", {n, w.n}));
    CaseMemory m(device_);
    const auto* y = product<float>(m, m.put(x), n, w, false);
    DI_CHECK_OK(m.ready());
    check_below(relative_rms(m.get(y, n * w.n), want), kLogitRelative, "head");
    return m.ready();
  });
}

Status OpsGoldens::run_markov_confidence() {
  return run_case({"markov.tokens", "markov.logits", "confidence.x", "confidence.y"}, [&]() -> Status {
    const std::string last = fmt::format("mtp.{}.", shape_.draft_stages - 1);
    DI_TRY(const Matrix embed, matrix(last + "markov_head.embed"));
    DI_TRY(const Matrix head, matrix(last + "markov_head.head"));
    DI_TRY(const auto proj, weight<Bf16>(last + "confidence_head.proj.weight", {1, shape_.hidden + shape_.markov_rank}));
    const int64_t n = dim("markov.tokens", 0);
    DI_TRY(const auto tokens, file_.typed<int32_t>("markov.tokens"));
    DI_TRY(const auto want, file_.typed<float>("markov.logits", {n, head.n}));
    DI_TRY(const auto x, file_.typed<Bf16>("confidence.x", {n, shape_.hidden}));
    DI_TRY(const auto confidence, file_.typed<float>("confidence.y", {n}));
    CaseMemory m(device_);
    auto* logits = m.room<float>(n * head.n);
    auto* conf = m.room<float>(n);
    const auto* table = static_cast<const Bf16*>(m.matrix(embed).data);
    const MarkovParams p = {m.rows(n),
                            m.room<float>(n * head.n),
                            head.n,
                            m.put(tokens),
                            1,
                            table,
                            static_cast<const Bf16*>(m.matrix(head).data),
                            logits,
                            head.n,
                            head.n,
                            head.k};
    const ConfidenceParams c = {p.rows, m.put(x), shape_.hidden, p.prev, 1, table, m.put(proj), conf, 1, shape_.hidden, head.k};
    DI_CHECK_OK(m.ready());
    ops_.markov(p);
    check_below(relative_rms(m.get(logits, n * head.n), want), kLogitRelative, "markov");
    ops_.confidence(c);
    check_below(relative_rms(m.get(conf, n), confidence), kLogitRelative, "confidence");
    return m.ready();
  });
}

}  // namespace deepinfer
