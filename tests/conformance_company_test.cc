// A row's product is the same bytes alone and in any company, whichever kernel the number of rows chooses.
#include "tests/conformance.h"

namespace deepinfer {
namespace {

constexpr int kAll = 100;                              // more than a tile of many rows holds
constexpr int kTogether[] = {1, 2, 8, 9, 20, 33, 64};  // of the rows at a time

class Company : public Conformance {
 protected:
  template <class T>
  Buffer put(const std::vector<T>& values) {
    auto buffer = device().allocate(values.size() * sizeof(T) + 1);
    EXPECT_TRUE(buffer.ok());
    device().upload(buffer->template as<void>(), values.data(), values.size() * sizeof(T));
    finish();
    return *std::move(buffer);
  }
  template <class T>
  std::vector<T> get(const Buffer& buffer, size_t count) {
    std::vector<T> out(count);
    device().download(out.data(), buffer.as<void>(), count * sizeof(T));
    finish();
    return out;
  }
  void finish() { EXPECT_TRUE(device().wait(device().record()).ok()); }
};

TEST_P(Company, Matmul) {
  struct Shape {
    WeightFormat format;
    int n, k;
    bool quantized;
  };
  for (const Shape& s : {Shape{WeightFormat::kF8Tile, 200, 1312, true}, Shape{WeightFormat::kF8Tile, 208, 5120, true},
                         Shape{WeightFormat::kF8Tile, 130, 4096, false}, Shape{WeightFormat::kFp4, 336, 1056, true},
                         Shape{WeightFormat::kBf16, 144, 5120, false}, Shape{WeightFormat::kBf16, 33, 588, false}}) {
    const Weight weight = random_weight(random, s.format, s.n, s.k);
    const Buffer data = put(weight.data), scales = put(weight.scales);
    const Buffer x = put(random.bf16(int64_t{kAll} * s.k)), codes = put(random.e4m3(int64_t{kAll} * s.k)),
                 x_scales = put(random.e8m0(int64_t{kAll} * s.k / 32 + 1)), y = put(random.f32(int64_t{kAll} * s.n));
    const auto multiply = [&](int first, int count) {
      const Buffer rows = put(std::vector<int32_t>{count});
      MatmulParams p = {};
      p.rows = {rows.as<int32_t>(), kAll};
      p.x = s.quantized ? nullptr : x.as<Bf16>() + int64_t{first} * s.k;
      p.codes = codes.as<uint8_t>() + int64_t{first} * s.k;
      p.scales = x_scales.as<uint8_t>() + int64_t{first} * s.k / 32;
      p.x_stride = s.k;
      p.w = {s.format, data.as<void>(), scales.as<uint8_t>(), s.n, s.k};
      p.groups = 1;
      p.y = y.as<void>();
      p.y_type = OutputType::kF32;
      p.y_stride = s.n;
      p.y_scale = 1.0f;
      device().ops().matmul(p);
      return get<float>(y, static_cast<size_t>(count) * static_cast<size_t>(s.n));
    };
    const std::vector<float> all = multiply(0, kAll);
    for (const int together : kTogether) {
      for (const int first : {3, kAll - together}) {
        const std::vector<float> some = multiply(first, together);
        EXPECT_EQ(std::memcmp(some.data(), all.data() + static_cast<size_t>(first) * static_cast<size_t>(s.n), some.size() * 4),
                  0)
            << s.n << " x " << s.k << ": " << together << " rows from " << first;
      }
    }
  }
}

TEST_P(Company, GroupedMatmul) {
  constexpr int kExperts = 3, kWidth = 1056, kOutputs = 150;
  for (const WeightFormat format : {WeightFormat::kFp4, WeightFormat::kF8Tile}) {
    const Weight weight = random_weight(random, format, kOutputs, kWidth);
    const Buffer data = put(weight.data), scales = put(weight.scales);
    const Buffer codes = put(random.e4m3(kAll * kWidth)), x_scales = put(random.e8m0(kAll * kWidth / 32)),
                 y = put(random.f32(int64_t{kAll} * kOutputs));
    const std::vector<Matrix> table(kExperts, {format, data.as<void>(), scales.as<uint8_t>(), kOutputs, kWidth});
    // Rows [first, first + count) all go to the last expert, a tile before them to the first.
    const auto multiply = [&](int first, int count) {
      std::vector<int32_t> rows;
      const int others = count > 40 ? 0 : 5;
      for (int i = 0; i < others + count; ++i) rows.push_back(i < others ? 0 : first + i - others);
      const Buffer pair_row = put(rows), offsets = put(std::vector<int32_t>{0, others, others, others + count}),
                   pairs = put(std::vector<int32_t>{others + count});
      device().ops().grouped_matmul({{pairs.as<int32_t>(), kAll},
                                     codes.as<uint8_t>(),
                                     x_scales.as<uint8_t>(),
                                     pair_row.as<int32_t>(),
                                     offsets.as<int32_t>(),
                                     table.data(),
                                     kExperts,
                                     y.as<Bf16>()});
      auto out = get<Bf16>(y, static_cast<size_t>(others + count) * kOutputs);
      out.erase(out.begin(), out.begin() + others * kOutputs);
      return out;
    };
    const std::vector<Bf16> all = multiply(0, kAll);
    for (const int together : kTogether) {
      for (const int first : {3, kAll - together}) {
        EXPECT_TRUE(same_bits(multiply(first, together),
                              std::vector<Bf16>(all.begin() + first * kOutputs, all.begin() + (first + together) * kOutputs)))
            << together << " rows from " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Company, testing::Values("delayed", "cuda", "portable", "eager"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer
