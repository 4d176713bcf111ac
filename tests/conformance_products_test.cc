// Products, draws and the vision tower's operations on every device: bit for bit the portable bodies, but products on tensor
// cores.
#include "tests/conformance.h"

namespace deepinfer {
namespace {

using Ops = const OpTable&;
using At = const Twin::Side&;

// A weight on both devices.
struct TwinMatrix {
  TwinMatrix(Twin& twin, Random& random, WeightFormat format, int n, int k)
      : weight(random_weight(random, format, n, k)), data(twin.in(weight.data)), scales(twin.in(weight.scales)) {}
  Matrix operator()(At at) const {
    Matrix w = weight.matrix;
    w.data = at(data);
    w.scales = at(scales);
    return w;
  }
  Weight weight;
  Twin::Slot<uint8_t> data, scales;
};

struct Product {
  WeightFormat format;
  int n, k, groups;
  bool quantized;
};

struct Experts {
  int experts, top_k, n, k;
};

constexpr auto bf16 = WeightFormat::kBf16, f8 = WeightFormat::kF8Tile, fp4 = WeightFormat::kFp4;

class ConformanceProducts : public Conformance {
 protected:
  void matmul(const Product& s);
  void grouped_matmul(const Experts& s);
};

// Tiny sizes with every kind of rest, then (apart, for the race checker's sake) those of the release: q_a, gate, wo_a, index
// heads.
TEST_P(ConformanceProducts, Matmul) {
  for (const Product& s : {Product{bf16, 1, 1, 1, false}, Product{bf16, 33, 588, 1, false}, Product{bf16, 70, 45, 2, false},
                           Product{bf16, 33, 48, 1, false}, Product{bf16, 24, 1216, 1, false}, Product{bf16, 24, 1200, 1, false},
                           Product{f8, 33, 32, 1, true}, Product{f8, 64, 1056, 1, true}, Product{f8, 96, 64, 4, false},
                           Product{fp4, 31, 96, 1, true}, Product{fp4, 40, 2304, 1, true}}) {
    matmul(s);
  }
}

TEST_P(ConformanceProducts, MatmulRelease) {
  for (const Product& s :
       {Product{f8, 1280, 5120, 1, true}, Product{bf16, 384, 5120, 1, false}, Product{f8, 1024, 4096, 2, false},
        Product{bf16, 32, 5120, 1, false}, Product{f8, 1024, 8192, 1, true}}) {
    matmul(s);
  }
}

TEST_P(ConformanceProducts, GroupedMatmul) {
  for (const auto& s : {Experts{1, 1, 5, 32}, Experts{9, 3, 70, 288}, Experts{70, 3, 64, 64}, Experts{600, 6, 33, 32}}) {
    grouped_matmul(s);
  }
}

TEST_P(ConformanceProducts, GroupedMatmulRelease) {
  for (const auto& s : {Experts{8, 4, 2304, 5120}, Experts{8, 4, 5120, 2304}}) grouped_matmul(s);
}

void ConformanceProducts::matmul(const Product& s) {
  for (const int n : {1, 3, 8, 20, 37}) {
    Twin t(device());
    const int m = n + 2;
    const auto count = t.count(n);
    const TwinMatrix w(t, random, s.format, s.n, s.k);
    const int64_t width = int64_t{s.groups} * s.k;
    const auto x = t.in(random.bf16(m * (width + 8)));
    const auto codes = t.in(random.e4m3(m * width)), scales = t.in(random.e8m0(m * width / 32 + 1));
    const auto bias = t.in(random.bf16(s.n));
    const auto y = t.out<float>(int64_t{m} * (s.n + 1));
    for (const OutputType type : {OutputType::kBf16, OutputType::kF32}) {
      if (tensor_cores()) t.close(y, type);
      t.check("matmul of format " + std::to_string(static_cast<int>(s.format)) + ", " + std::to_string(s.n) + " x " +
                  std::to_string(s.k) + ", " + std::to_string(n) + " rows",
              [&](Ops ops, At at) {
                MatmulParams p = {};
                p.rows = at.rows(count, n);
                p.x = s.quantized ? nullptr : at(x);
                p.codes = at(codes);
                p.scales = at(scales);
                p.x_stride = width + (type == OutputType::kF32 ? 8 : 3);
                p.w = w(at);
                p.groups = s.groups;
                p.bias = type == OutputType::kF32 ? at(bias) : nullptr;
                p.y = at(y);
                p.y_type = type;
                p.y_stride = s.n + 1;
                p.y_scale = type == OutputType::kF32 ? 1.0f : 0.37f;
                ops.matmul(p);
              });
    }
  }
}

void ConformanceProducts::grouped_matmul(const Experts& s) {
  for (const int n : {1, 3, 40}) {
    Twin t(device());
    const int m = n + 2, pairs_capacity = m * s.top_k;
    std::vector<TwinMatrix> weights;
    const WeightFormat format = s.k % 64 == 0 ? WeightFormat::kFp4 : WeightFormat::kF8Tile;
    // Experts may share a weight; a few different ones will do.
    for (int e = 0; e < std::min(s.experts, 4); ++e) weights.emplace_back(t, random, format, s.n, s.k);
    const auto count = t.count(n), ids = t.in(below(random, m * s.top_k, s.experts));
    const auto pair_row = t.in(std::vector<int32_t>(static_cast<size_t>(pairs_capacity), 0));
    const auto pair_slot = t.out<int32_t>(pairs_capacity), pair_of = t.out<int32_t>(pairs_capacity);
    const auto offsets = t.in(std::vector<int32_t>(static_cast<size_t>(s.experts + 1), 0)), pairs = t.count(0);
    const auto codes = t.in(random.e4m3(int64_t{pairs_capacity} * s.k)),
               scales = t.in(random.e8m0(int64_t{pairs_capacity} * s.k / 32));
    const auto y = t.out<Bf16>(int64_t{pairs_capacity} * s.n);
    if (tensor_cores()) t.close(y, OutputType::kBf16);
    for (const bool gathered : {true, false}) {
      t.check("grouped_matmul of " + std::to_string(s.experts) + " experts, " + std::to_string(n) + " rows", [&](Ops ops, At at) {
        std::vector<Matrix> table;
        for (int e = 0; e < s.experts; ++e) table.push_back(weights[static_cast<size_t>(e) % weights.size()](at));
        ops.group_pairs({at.rows(count, n), at(ids), at(pair_row), at(pair_slot), at(pair_of), at(offsets), at(pairs), s.top_k, 0,
                         s.experts});
        ops.grouped_matmul({{at(pairs), pairs_capacity},
                            at(codes),
                            at(scales),
                            gathered ? at(pair_row) : nullptr,
                            at(offsets),
                            table.data(),
                            s.experts,
                            at(y)});
      });
    }
  }
}

SampleRow random_draw(Random& random, int kind) {
  SampleRow s = {};
  s.seed = random.word();
  s.position = random.below(1000);
  s.temperature = kind == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(random.below(10));
  s.top_p = kind % 3 == 2 ? 0.8f : 1.0f;
  s.min_p = kind % 4 == 3 ? 0.05f : 0.0f;
  s.top_k = kind % 5 >= 3 ? 1 + random.below(40) : 0;
  s.repetition_penalty = 1.0f;
  s.num_logprobs = kind % 2 ? random.below(kMaxTopLogprobs + 1) : -1;
  if (kind % 7 == 5) s.bias_begin = 1, s.bias_end = 5;
  s.draft = -1;
  if (kind % 7 == 6) {
    s.history_begin = 0, s.history_end = 4;
    s.repetition_penalty = 1.3f, s.frequency_penalty = 0.4f, s.presence_penalty = 0.1f;
  }
  return s;
}

TEST_P(ConformanceProducts, Sample) {
  for (const int vocab : {5, 1000, 4099, 129280}) {
    const int n = vocab > 10000 ? 12 : 40, m = n + 2;
    Twin t(device());
    std::vector<SampleRow> draws;
    for (int i = 0; i < m; ++i) {
      draws.push_back(random_draw(random, i % 36));
      if (i % 3 != 0) draws.back().draft = random.below(vocab), draws.back().draft_row = (i + i % 3 - 1) % m;
    }
    auto logits = random.f32(int64_t{m} * vocab);
    for (int i = 0; i < m * 3; ++i) logits[static_cast<size_t>(i) * 7 % logits.size()] = 3.0f;  // ties, often at the cut
    for (int i = 0; i < vocab; ++i) logits[static_cast<size_t>(i)] = i % 2 ? INFINITY : -INFINITY;
    const int words = (vocab + 31) / 32;
    std::vector<uint32_t> masks;
    for (int i = 0; i < m * words; ++i) masks.push_back(i / words % 2 ? random.word() : 0xFFFFFFFFu);
    const auto count = t.count(n);
    const auto settings = t.in(draws);
    const auto logit = t.in(logits);
    const auto mask = t.in(masks);
    const auto bias_ids = t.in(below(random, 6, vocab));
    const auto bias = t.in(random.f32(6));
    const auto history = t.in(std::vector<int32_t>{0, 2, 1, 1, 0, 3, 2, 1, 0, 4, 5, 5});
    const auto scratch = t.scratch<float>(int64_t{t.scratch_rows()} * 4 * vocab);
    const auto results = t.in(std::vector<SampleResult>(static_cast<size_t>(m), SampleResult{}));
    const auto drafts = t.in(random.f32(int64_t{m} * vocab));
    for (const int kind : {0, 1, 2, 3}) {
      t.check("sample of " + std::to_string(vocab), [&](Ops ops, At at) {
        ops.sample({at.rows(count, n), at(logit), at(settings), at(bias_ids), at(bias), at(history),
                    kind % 2 ? at(mask) : nullptr, words, at(scratch), t.scratch_rows(), at(results), vocab,
                    kind / 2 ? at(drafts) : nullptr});
      });
    }
  }
}

TEST_P(ConformanceProducts, Vision) {
  struct Shape {
    int rows, columns, heads, dim;
  };
  for (const auto& s : {Shape{1, 1, 1, 16}, Shape{7, 5, 3, 32}, Shape{14, 13, 4, 64}}) {
    Twin t(device());
    const int n = s.rows * s.columns, width = s.heads * s.dim;
    std::vector<int32_t> places;
    for (int i = 0; i < n; ++i) places.insert(places.end(), {i / s.columns, i % s.columns});
    const auto count = t.count(n), grid = t.in(places);
    const auto qkv = t.in(random.bf16(int64_t{n + 2} * 3 * width)), b = t.in(random.bf16(int64_t{n + 2} * 2 * width));
    const auto o = t.out<Bf16>(int64_t{n + 2} * width);
    const auto scratch = t.scratch<float>(int64_t{t.scratch_rows()} * n);
    t.check("vision_rope", [&](Ops ops, At at) {
      ops.vision_rope({at.rows(count, n), at(qkv), at(grid), s.heads, s.dim, 10000.0f});
    });
    t.check("vision_attention", [&](Ops ops, At at) {
      ops.vision_attention({at.rows(count, n), at(qkv), at(o), at(scratch), t.scratch_rows(), s.heads, s.dim});
    });
    for (const PointwiseKind kind : {PointwiseKind::kAdd, PointwiseKind::kSiluMul, PointwiseKind::kGelu}) {
      t.check("pointwise", [&](Ops ops, At at) { ops.pointwise({at.rows(count, n), kind, at(b), at(qkv), at(o), width}); });
    }
    const auto y = t.out<Bf16>(int64_t{(s.rows + 2) / 3} * ((s.columns + 2) / 3) * width * 9);
    t.check("unfold", [&](Ops ops, At at) { ops.unfold({at(b), at(y), s.rows, s.columns, width, 3}); });
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceProducts, testing::Values("delayed", "cuda", "portable", "eager"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer
