// Products on every kernel set against their definition, on random shapes, rows and threads: bit for bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/test_values.h"

namespace deepinfer {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

// What an element is: product_of() or another order of additions.
template <class Product>
void expect_matmul(const Devices& devices, const Product& product) {
  const auto element = [&](const MatmulParams& p, int64_t row, int64_t column) {
    const int64_t first = column / (p.w.n / p.groups) * p.w.k, at = row * p.groups * p.w.k + first;
    const auto x = [&](int i) { return p.x ? to_float(p.x[row * p.x_stride + first + i]) : q8_at(p.codes, p.scales, at + i); };
    // Groups that begin within a panel are the portable set's.
    return p.groups > 1 && p.w.n / p.groups % 16 != 0 ? product_of(p.w, column, x) : product(p.w, column, x);
  };
  Random random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const auto format = static_cast<WeightFormat>(trial % 3);
    const bool scaled = format == WeightFormat::kF8Tile || format == WeightFormat::kFp4;
    const bool quantized = scaled && trial % 8 >= 4;
    const int k = scaled || quantized ? 32 * random.between(1, 9) : random.between(1, 300);
    const int groups = trial % 5 == 0 ? random.between(2, 4) : 1;
    const int n = groups * random.between(1, 70), rows = trial % 3 == 0 ? 1 : random.between(1, 70);
    const Weight w = random_weight(random, format, n, k);
    const int capacity = rows + random.below(3);
    const auto x = random.bf16(int64_t{capacity} * (groups * k + 3));
    const auto codes = random.e4m3(int64_t{capacity} * groups * k), scales = random.e8m0(int64_t{capacity} * groups * k / 32 + 1);
    const auto bias = random.bf16(n);
    const int32_t count = rows;
    MatmulParams p = {};
    p.rows = {&count, capacity};
    if (quantized) {
      p.codes = codes.data();
      p.scales = scales.data();
    } else {
      p.x = x.data();
      p.x_stride = groups * k + 3;
    }
    p.w = w.matrix;
    p.groups = groups;
    p.bias = trial % 7 == 0 ? bias.data() : nullptr;
    p.y_type = trial % 2 ? OutputType::kBf16 : OutputType::kF32;
    p.y_stride = n + random.below(4);
    p.y_scale = trial % 6 == 0 ? 0.37f : 1.0f;
    std::vector<uint8_t> want(static_cast<size_t>(capacity * p.y_stride * 4), 0xAB);
    p.y = want.data();
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < n; ++c) store_matmul(p, r, c, element(p, r, c));
    }
    for (const auto& device : devices) {
      for (const bool packed : {false, true}) {
        p.w = w.matrix;
        Buffer room;
        Matrix* const weights[] = {&p.w};
        if (packed) room = *device->pack(weights);
        std::vector<uint8_t> got(want.size(), 0xAB);
        p.y = got.data();
        device->ops().matmul(p);
        EXPECT_TRUE(same_bits(got, want)) << describe(*device) << " format " << trial % 3 << " rows " << rows << " n " << n
                                          << " k " << k << " groups " << groups << " quantized " << quantized << " packed "
                                          << packed;
      }
    }
  }
}

// Room for the decoded weights of the portable set was counted as the tuned sets need it, too little beyond 1,536 columns.
TEST(Cpu, MatmulOfManyColumns) {
  Random random(7);
  const int k = 6144, n = 9;
  const Weight w = random_weight(random, WeightFormat::kFp4, n, k);
  const auto x = random.bf16(k);
  const int32_t count = 1;
  std::vector<float> want(n);
  MatmulParams p = {};
  p.rows = {&count, 1};
  p.x = x.data();
  p.x_stride = k;
  p.w = w.matrix;
  p.groups = 1;
  p.y_type = OutputType::kF32;
  p.y_stride = n;
  p.y_scale = 1.0f;
  for (int c = 0; c < n; ++c) want[static_cast<size_t>(c)] = matmul_element(p, 0, c);
  for (const auto& device : all_devices()) {
    std::vector<float> got(n);
    p.y = got.data();
    device->ops().matmul(p);
    EXPECT_TRUE(same_bits(got, want)) << describe(*device);
  }
}

template <class Product>
void expect_grouped_matmul(const Devices& devices, const Product& product) {
  const auto element = [&](const GroupedMatmulParams& p, int64_t pair, int64_t column) {
    const int64_t expert = std::upper_bound(p.offsets, p.offsets + p.num_experts, pair) - p.offsets - 1;
    const Matrix& w = p.weights[expert];
    return product(w, column, [&](int i) { return q8_at(p.codes, p.scales, int64_t{p.pair_row[pair]} * w.k + i); });
  };
  Random random(2);
  for (int trial = 0; trial < 24; ++trial) {
    const int experts = random.between(1, 12), top_k = random.between(1, std::min(4, experts)), rows = random.between(1, 40);
    const int k = 32 * random.between(1, 8), n = random.between(1, 70);
    std::vector<Weight> weights;
    std::vector<Matrix> table;
    for (int e = 0; e < experts; ++e)
      weights.push_back(random_weight(random, trial % 2 ? WeightFormat::kFp4 : WeightFormat::kF8Tile, n, k));
    for (const auto& w : weights) table.push_back(w.matrix);
    std::vector<int32_t> ids;
    for (int i = 0; i < rows * top_k; ++i) ids.push_back(random.between(-1, experts));  // others' experts and padding, too
    std::vector<int32_t> pair_row(ids.size()), pair_slot(ids.size()), pair_of(ids.size()),
        offsets(static_cast<size_t>(experts + 1));
    int32_t count = rows, pairs = 0;
    const GroupPairsParams group = {
        {&count, rows}, ids.data(), pair_row.data(), pair_slot.data(), pair_of.data(), offsets.data(), &pairs, top_k, 0, experts};
    devices[0]->ops().group_pairs(group);
    for (int i = 0, before = -1; i < pairs; ++i) {
      const int expert = ids[static_cast<size_t>(pair_row[static_cast<size_t>(i)] * top_k + pair_slot[static_cast<size_t>(i)])];
      EXPECT_GE(expert, before);
      EXPECT_TRUE(i >= offsets[static_cast<size_t>(expert)] && i < offsets[static_cast<size_t>(expert) + 1]);
      before = expert;
    }
    const auto codes = random.e4m3(int64_t{rows} * k), scales = random.e8m0(int64_t{rows} * k / 32);
    std::vector<Bf16> want(static_cast<size_t>(rows * top_k * n), Bf16{7});
    GroupedMatmulParams p = {{&pairs, rows * top_k}, codes.data(), scales.data(), pair_row.data(),
                             offsets.data(),         table.data(), experts,       nullptr};
    for (int64_t i = 0; i < pairs; ++i) {
      for (int64_t c = 0; c < n; ++c) want[static_cast<size_t>(i * n + c)] = to_bf16(element(p, i, c));
    }
    for (const auto& device : devices) {
      std::vector<Matrix> packed = table;
      std::vector<Matrix*> weights_of;
      for (Matrix& w : packed) weights_of.push_back(&w);
      const Buffer room = *device->pack(weights_of);
      for (const auto* weights : {&table, &packed}) {
        std::vector<Bf16> got(want.size(), Bf16{7});
        p.weights = weights->data();
        p.y = got.data();
        device->ops().grouped_matmul(p);
        EXPECT_TRUE(same_bits(got, want)) << describe(*device) << " pairs " << pairs << " n " << n << " k " << k;
      }
    }
  }
}

struct PlainProduct {
  template <class X>
  float operator()(const Matrix& w, int64_t row, X x) const {
    return product_of(w, row, x);
  }
};

TEST(Cpu, MatmulEqualsDefinition) { expect_matmul(all_devices(), PlainProduct()); }
TEST(Cpu, GroupedMatmulEqualsDefinition) { expect_grouped_matmul(all_devices(), PlainProduct()); }

// The class `amx` (ops.h), written down once more: for any number of rows, tiles or emulated tiles.
struct AmxProduct {
  static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
  template <class X>
  float operator()(const Matrix& w, int64_t row, X x) const {
    if (w.format == WeightFormat::kFp4) return product_of(w, row, x);
    const float factor = w.format == WeightFormat::kF8Tile ? 0x1p80f : 1.0f;
    float sum = 0.0f;
    for (int begin = 0; begin < w.k; begin += 32) {
      float apart[2] = {};
      for (int i = begin; i < std::min(begin + 32, w.k); ++i) {
        const float weight = flushed(weight_code(w, row, i) * factor * block_scale(w, row, begin / 32));
        apart[i % 2] = flushed(std::fma(flushed(x(i)), weight, apart[i % 2]));
      }
      sum = flushed(sum + flushed(apart[0] + apart[1]));
    }
    return sum;
  }
};

Devices amx_devices() {
  Devices out;
  for (const int threads : {1, 3}) {
    auto device = make_cpu_device({.threads = threads, .isa = "amx"});
    if (device.ok())
      out.push_back(*std::move(device));
    else if (cpu::kEmulatedAmxKernels.supported())
      out.push_back(cpu::make_device_of({.threads = threads}, cpu::kEmulatedAmxKernels));
  }
  return out;
}

TEST(Cpu, AmxMatmulEqualsItsDefinition) { expect_matmul(amx_devices(), AmxProduct()); }
TEST(Cpu, AmxGroupedMatmulEqualsItsDefinition) { expect_grouped_matmul(amx_devices(), AmxProduct()); }

TEST(Cpu, MixEqualsRowBody) {
  const auto devices = all_devices();
  Random random(3);
  for (int trial = 0; trial < 12; ++trial) {
    const int hidden = random.between(1, 80), rows = random.between(1, 40), s = 4, outputs = 24;
    const auto x = random.bf16(int64_t{rows} * s * hidden);
    const auto fn = random.f32(int64_t{outputs} * s * hidden), base = random.f32(outputs), scale = random.f32(3);
    const int32_t count = rows;
    const auto run = [&](auto body) {
      std::vector<float> out(static_cast<size_t>(rows * outputs));
      body(MixParams{{&count, rows},
                     x.data(),
                     fn.data(),
                     base.data(),
                     scale.data(),
                     out.data(),
                     out.data() + rows * s,
                     out.data() + 2 * rows * s,
                     hidden,
                     s,
                     20,
                     1e-20f,
                     1e-6f});
      return out;
    };
    const auto want = run([&](const MixParams& p) {
      for (int r = 0; r < rows; ++r) mix_row(p, r);
    });
    for (const auto& device : devices) {
      EXPECT_TRUE(same_bits(run([&](const MixParams& p) { device->ops().mix(p); }), want)) << describe(*device);
    }
  }
}

}  // namespace
}  // namespace deepinfer
