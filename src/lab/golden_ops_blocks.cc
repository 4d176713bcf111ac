// Operator goldens of residual streams, experts and Engram.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "lab/error_metrics.h"
#include "lab/golden_ops.h"
#include "model/engram_tables.h"
#include "ops/portable/quant.h"

namespace deepinfer {
namespace {

constexpr double kEqualShare = 0.999;
constexpr double kWeightError = 1e-5;  // Sinkhorn and router weights
constexpr double kRouterGap = 1e-5;    // unstructured inputs: closer scores may order either way
// A whole expert block passes two quantisers; the bound is that of attention outputs, far below a wrong rule (0.05).
constexpr double kBlockRms = 3e-3;

std::vector<float> floats(std::span<const Bf16> values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), [](Bf16 v) { return to_float(v); });
  return out;
}

// dq(q8(x)), the portable rule.
std::vector<Bf16> quantized(std::span<const Bf16> x) {
  std::vector<Bf16> out(x.size());
  for (size_t at = 0; at + 32 <= x.size(); at += 32) {
    float block[32];
    uint8_t codes[32];
    load_bf16(&x[at], 32, block);
    const float scale = e8m0_to_float(quantize_q8(block, codes));
    for (size_t i = 0; i < 32; ++i) out[at + i] = to_bf16(e4m3_to_float(codes[i]) * scale);
  }
  return out;
}

}  // namespace

// One-hot streams: with 4 * hidden rows, x[r] = e_r has mean square 1/n, so fn[:, r] = mixes[r] / sqrt(n) gives exactly the
// golden's mixes. REQUIRES n a power of four, which the files keep.
Status OpsGoldens::run_sinkhorn() {
  return run_case({"sinkhorn.mixes", "sinkhorn.base", "sinkhorn.scale", "sinkhorn.pre", "sinkhorn.post", "sinkhorn.comb"},
                  [&]() -> Status {
                    const int64_t n = dim("sinkhorn.mixes", 0), s = shape_.streams, outputs = 2 * s + s * s;
                    const float root = std::sqrt(static_cast<float>(n));
                    if (n % s != 0 || std::exp2(std::round(std::log2(root))) != root) {
                      counts_.leave_out();
                      return {};
                    }
                    DI_TRY(const auto mixes, file_.typed<Bf16>("sinkhorn.mixes", {n, outputs}));
                    DI_TRY(const auto base, file_.typed<Bf16>("sinkhorn.base", {outputs}));
                    DI_TRY(const auto scale, file_.typed<Bf16>("sinkhorn.scale", {3}));
                    DI_TRY(const auto pre, file_.typed<float>("sinkhorn.pre", {n, s}));
                    DI_TRY(const auto post, file_.typed<float>("sinkhorn.post", {n, s}));
                    DI_TRY(const auto comb, file_.typed<float>("sinkhorn.comb", {n, s, s}));
                    std::vector<Bf16> x(static_cast<size_t>(n * n), Bf16{0});
                    std::vector<float> fn(static_cast<size_t>(outputs * n));
                    for (int64_t r = 0; r < n; ++r) {
                      x[static_cast<size_t>(r * n + r)] = to_bf16(1.0f);
                      for (int64_t o = 0; o < outputs; ++o)
                        fn[static_cast<size_t>(o * n + r)] = to_float(mixes[static_cast<size_t>(r * outputs + o)]) / root;
                    }
                    CaseMemory m(device_);
                    const MixParams p = {m.rows(n),
                                         m.put(x),
                                         m.put(fn),
                                         m.put(floats(base)),
                                         m.put(floats(scale)),
                                         m.room<float>(n * s),
                                         m.room<float>(n * s),
                                         m.room<float>(n * s * s),
                                         static_cast<int32_t>(n / s),
                                         static_cast<int32_t>(s),
                                         shape_.sinkhorn_iters,
                                         shape_.rms_eps,
                                         shape_.hc_eps};
                    DI_CHECK_OK(m.ready());
                    ops_.mix(p);
                    check_below(max_error(m.get(p.pre, n * s), pre), kWeightError, "sinkhorn.pre");
                    check_below(max_error(m.get(p.post, n * s), post), kWeightError, "sinkhorn.post");
                    check_below(max_error(m.get(p.comb, n * s * s), comb), kWeightError, "sinkhorn.comb");
                    return m.ready();
                  });
}

// site = "layers.3.attn": weights layers.3.hc_attn_{fn,base,scale}.
Status OpsGoldens::run_hyper(const std::string& site) {
  const std::string id = "hc/" + site;
  return run_case(
      {id + "/X", id + "/y", id + "/pre", id + "/post", id + "/comb", id + "/collapse", id + "/expand"}, [&]() -> Status {
        const int64_t n = dim(id + "/X", 0), s = shape_.streams, d = shape_.hidden, outputs = 2 * s + s * s;
        const size_t dot = site.rfind('.');
        if (dot == std::string::npos) return not_found(id + " does not name a site");
        const std::string weights = site.substr(0, dot) + ".hc_" + site.substr(dot + 1) + "_";
        DI_TRY(const auto fn, weight<float>(weights + "fn", {outputs, s * d}));
        DI_TRY(const auto base, weight<float>(weights + "base", {outputs}));
        DI_TRY(const auto scale, weight<float>(weights + "scale", {3}));
        DI_TRY(const auto x, file_.typed<Bf16>(id + "/X", {n, s, d}));
        DI_TRY(const auto y, file_.typed<Bf16>(id + "/y", {n, d}));
        DI_TRY(const auto pre, file_.typed<float>(id + "/pre", {n, s}));
        DI_TRY(const auto post, file_.typed<float>(id + "/post", {n, s}));
        DI_TRY(const auto comb, file_.typed<float>(id + "/comb", {n, s, s}));
        DI_TRY(const auto collapse, file_.typed<Bf16>(id + "/collapse", {n, d}));
        DI_TRY(const auto expand, file_.typed<Bf16>(id + "/expand", {n, s, d}));
        CaseMemory m(device_);
        auto* streams = m.put(x);
        const auto width = static_cast<int32_t>(d), num = static_cast<int32_t>(s);
        const MixParams p = {m.rows(n),
                             streams,
                             m.put(fn),
                             m.put(base),
                             m.put(scale),
                             m.room<float>(n * s),
                             m.room<float>(n * s),
                             m.room<float>(n * s * s),
                             width,
                             num,
                             shape_.sinkhorn_iters,
                             shape_.rms_eps,
                             shape_.hc_eps};
        // Collapse and expand start from the golden's own weights.
        const CollapseNormParams c = {p.rows, streams, m.put(pre),    m.room<Bf16>(d), m.room<Bf16>(n * d), m.room<Bf16>(n * d),
                                      width,  num,     shape_.rms_eps};
        const ExpandParams e = {p.rows, m.put(y), m.put(post), m.put(comb), streams, width, num};
        DI_CHECK_OK(m.ready());
        ops_.mix(p);
        check_below(max_error(m.get(p.pre, n * s), pre), kWeightError, id + "/pre");
        check_below(max_error(m.get(p.post, n * s), post), kWeightError, id + "/post");
        check_below(max_error(m.get(p.comb, n * s * s), comb), kWeightError, id + "/comb");
        ops_.collapse_norm(c);
        check_bf16(m.get(c.collapsed, n * d), collapse, 1, kEqualShare, id + "/collapse");
        ops_.expand(e);
        check_bf16(m.get(e.x, n * s * d), expand, 1, kEqualShare, id + "/expand");
        return m.ready();
      });
}

Status OpsGoldens::run_router(const std::string& layer) {
  const std::string id = "router/" + layer;
  return run_case({id + "/x", id + "/ids", id + "/w"}, [&]() -> Status {
    const int64_t n = dim(id + "/x", 0), experts = shape_.experts, k = shape_.experts_per_token;
    DI_TRY(const Matrix gate, matrix(layer + ".ffn.gate"));
    DI_TRY(const auto bias, weight<float>(layer + ".ffn.gate.bias", {experts}));
    DI_TRY(const auto bias_image, weight<float>(layer + ".ffn.gate.bias_vl", {experts}));
    DI_TRY(const auto x, file_.typed<Bf16>(id + "/x", {n, gate.k}));
    DI_TRY(const auto ids, file_.typed<int32_t>(id + "/ids", {n, k}));
    DI_TRY(const auto w, file_.typed<float>(id + "/w", {n, k}));
    const TensorView* mask = file_.find(id + "/image_mask");
    CaseMemory m(device_);
    const auto* logits = product<float>(m, m.put(x), n, gate, false);
    const RouteParams p = {m.rows(n),
                           logits,
                           m.put(bias),
                           m.put(bias_image),
                           mask ? m.put(mask->data) : nullptr,
                           m.room<int32_t>(n * k),
                           m.room<float>(n * k),
                           static_cast<int32_t>(experts),
                           static_cast<int32_t>(k),
                           shape_.routed_scaling};
    DI_CHECK_OK(m.ready());
    ops_.route(p);
    const auto got_ids = m.get(p.ids, n * k);
    const auto got_w = m.get(p.weights, n * k);
    const auto scores = m.get(logits, n * experts);
    int64_t wrong = 0;
    double worst = 0;
    for (int64_t r = 0; r < n; ++r) {
      const auto row = static_cast<size_t>(r * k);
      if (std::equal(&got_ids[row], &got_ids[row] + k, &ids[row])) {
        for (int64_t i = 0; i < k; ++i)
          worst = std::max(worst, std::abs(double{got_w[row + static_cast<size_t>(i)]} - w[row + static_cast<size_t>(i)]));
        continue;
      }
      const auto& b = mask && mask->data[static_cast<size_t>(r)] ? bias_image : bias;
      std::vector<double> key(static_cast<size_t>(experts));
      for (size_t e = 0; e < key.size(); ++e)
        key[e] = std::sqrt(std::log1p(std::exp(double{scores[static_cast<size_t>(r * experts) + e]}))) + b[e];
      std::sort(key.rbegin(), key.rend());
      wrong += key[static_cast<size_t>(k - 1)] - key[static_cast<size_t>(k)] > kRouterGap;
    }
    check(wrong == 0, id + "/ids", fmt::format("{} of {} rows choose other experts", wrong, n));
    check_below(worst, kWeightError, id + "/w");
    return m.ready();
  });
}

// The whole block on the router's input: route, group, experts, shared expert, combine.
Status OpsGoldens::run_moe(const std::string& layer) {
  const std::string id = "moe/" + layer, input = "router/" + layer;
  return run_case({id + "/y", input + "/x"}, [&]() -> Status {
    const int64_t n = dim(id + "/y", 0), d = shape_.hidden, experts = shape_.experts, k = shape_.experts_per_token;
    const int64_t inner = shape_.expert_hidden, pairs = n * k;
    const std::string prefix = layer + ".ffn.";
    DI_TRY(const auto x, file_.typed<Bf16>(input + "/x", {n, d}));
    DI_TRY(const auto want, file_.typed<Bf16>(id + "/y", {n, d}));
    DI_TRY(const Matrix gate, matrix(prefix + "gate"));
    DI_TRY(const auto bias, weight<float>(prefix + "gate.bias", {experts}));
    DI_TRY(const auto bias_image, weight<float>(prefix + "gate.bias_vl", {experts}));
    const TensorView* mask = file_.find(input + "/image_mask");
    CaseMemory m(device_);
    std::vector<Matrix> w[3];
    for (int64_t e = 0; e < experts; ++e) {
      for (int i = 0; i < 3; ++i) {
        DI_TRY(const Matrix host, matrix(fmt::format("{}experts.{}.w{}", prefix, e, i + 1)));
        w[i].push_back(m.matrix(host));
      }
    }
    auto* u = m.put(x);
    const auto* logits = product<float>(m, u, n, gate, false);
    const auto width = static_cast<int32_t>(inner);
    const RouteParams route = {m.rows(n),
                               logits,
                               m.put(bias),
                               m.put(bias_image),
                               mask ? m.put(mask->data) : nullptr,
                               m.room<int32_t>(pairs),
                               m.room<float>(pairs),
                               static_cast<int32_t>(experts),
                               static_cast<int32_t>(k),
                               shape_.routed_scaling};
    const GroupPairsParams group = {route.rows,
                                    route.ids,
                                    m.room<int32_t>(pairs),
                                    m.room<int32_t>(pairs),
                                    m.room<int32_t>(pairs),
                                    m.room<int32_t>(experts + 1),
                                    m.room<int32_t>(1),
                                    static_cast<int32_t>(k),
                                    0,
                                    static_cast<int32_t>(experts)};
    const QuantizeParams quantize = {route.rows, u, m.room<uint8_t>(n * d), m.room<uint8_t>(n * d / 32), static_cast<int32_t>(d)};
    const Rows live = {group.num_pairs, static_cast<int32_t>(pairs)};
    GroupedMatmulParams up = {live,
                              quantize.codes,
                              quantize.scales,
                              group.pair_row,
                              group.offsets,
                              w[0].data(),
                              static_cast<int32_t>(experts),
                              m.room<Bf16>(pairs * inner)};
    GroupedMatmulParams up3 = up;
    up3.weights = w[2].data();
    up3.y = m.room<Bf16>(pairs * inner);
    SwigluQuantizeParams unit = {live,
                                 up.y,
                                 up3.y,
                                 route.weights,
                                 group.pair_row,
                                 group.pair_slot,
                                 static_cast<int32_t>(k),
                                 m.room<uint8_t>(pairs * inner),
                                 m.room<uint8_t>(pairs * inner / 32),
                                 width,
                                 shape_.swiglu_limit};
    const GroupedMatmulParams down = {live,
                                      unit.codes,
                                      unit.scales,
                                      nullptr,
                                      group.offsets,
                                      w[1].data(),
                                      static_cast<int32_t>(experts),
                                      m.room<Bf16>(pairs * d)};
    DI_CHECK_OK(m.ready());
    ops_.route(route);
    ops_.group_pairs(group);
    ops_.quantize(quantize);
    ops_.grouped_matmul(up);
    ops_.grouped_matmul(up3);
    ops_.swiglu_quantize(unit);
    ops_.grouped_matmul(down);
    // The shared expert is the same unit without weights, on F8 matrices.
    DI_TRY(const Matrix s1, matrix(prefix + "shared_experts.w1"));
    DI_TRY(const Matrix s2, matrix(prefix + "shared_experts.w2"));
    DI_TRY(const Matrix s3, matrix(prefix + "shared_experts.w3"));
    auto* g = product<Bf16>(m, u, n, s1, true);
    auto* v = product<Bf16>(m, u, n, s3, true);
    const SwigluQuantizeParams shared = {route.rows,
                                         g,
                                         v,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         0,
                                         m.room<uint8_t>(n * inner),
                                         m.room<uint8_t>(n * inner / 32),
                                         width,
                                         shape_.swiglu_limit};
    MatmulParams last = {};
    last.rows = route.rows;
    last.codes = shared.codes;
    last.scales = shared.scales;
    last.w = m.matrix(s2);
    last.groups = 1;
    last.y = m.room<Bf16>(n * d);
    last.y_type = OutputType::kBf16;
    last.y_stride = d;
    last.y_scale = 1.0f;
    const CombineParams combine = {route.rows,
                                   down.y,
                                   group.pair_of,
                                   static_cast<const Bf16*>(last.y),
                                   m.room<Bf16>(n * d),
                                   static_cast<int32_t>(k),
                                   static_cast<int32_t>(d)};
    DI_CHECK_OK(m.ready());
    ops_.swiglu_quantize(shared);
    ops_.matmul(last);
    ops_.combine(combine);
    check_below(relative_rms(floats(m.get(combine.out, n * d)), floats(want)), kBlockRms, id);
    return m.ready();
  });
}

// The operation quantises its result, so both sides are compared after q8.
Status OpsGoldens::run_swiglu() {
  return run_case({"swiglu.g", "swiglu.u", "swiglu.w", "swiglu.limit", "swiglu.y", "swiglu.y_unweighted"}, [&]() -> Status {
    const int64_t n = dim("swiglu.g", 0), width = dim("swiglu.g", 1);
    DI_TRY(const auto g, file_.typed<Bf16>("swiglu.g"));
    DI_TRY(const auto u, file_.typed<Bf16>("swiglu.u", {n, width}));
    DI_TRY(const auto w, file_.typed<Bf16>("swiglu.w", {n, 1}));
    DI_TRY(const auto limit, file_.typed<Bf16>("swiglu.limit", {1}));
    DI_TRY(const auto weighted, file_.typed<Bf16>("swiglu.y", {n, width}));
    DI_TRY(const auto plain, file_.typed<Bf16>("swiglu.y_unweighted", {n, width}));
    CaseMemory m(device_);
    std::vector<int32_t> row(static_cast<size_t>(n));
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<int32_t>(i);
    SwigluQuantizeParams p = {m.rows(n),
                              m.put(g),
                              m.put(u),
                              m.put(floats(w)),
                              m.put(row),
                              m.room<int32_t>(n),
                              1,
                              m.room<uint8_t>(n * width),
                              m.room<uint8_t>(n * width / 32),
                              static_cast<int32_t>(width),
                              to_float(limit[0])};
    DI_CHECK_OK(m.ready());
    for (const auto& [want, id] : {std::pair(weighted, "swiglu.y"), std::pair(plain, "swiglu.y_unweighted")}) {
      ops_.swiglu_quantize(p);
      const auto codes = m.get(p.codes, n * width);
      const auto scales = m.get(p.scales, n * width / 32);
      std::vector<Bf16> got(codes.size());
      for (size_t i = 0; i < got.size(); ++i) got[i] = to_bf16(e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / 32]));
      const auto rounded = quantized(want);
      check_below(1.0 - equal_share(floats(got), floats(rounded)), 1.0 - kEqualShare, id);
      p.weights = nullptr;
    }
    return m.ready();
  });
}

Status OpsGoldens::run_engram_tables() {
  return run_case({"engram.multipliers", "engram.primes", "engram.offsets"}, [&]() -> Status {
    DI_TRY(const EngramTables tables, make_engram_tables(shape_));
    DI_TRY(const auto multipliers, file_.typed<int64_t>("engram.multipliers"));
    DI_TRY(const auto primes, file_.typed<int32_t>("engram.primes"));
    DI_TRY(const auto offsets, file_.typed<int32_t>("engram.offsets"));
    check_equal<int64_t>(tables.multipliers, multipliers, "engram.multipliers");
    check_equal<int32_t>(std::vector<int32_t>(tables.primes.begin(), tables.primes.end()), primes, "engram.primes");
    check_equal<int32_t>(std::vector<int32_t>(tables.offsets.begin(), tables.offsets.end()), offsets, "engram.offsets");
    return {};
  });
}

}  // namespace deepinfer
