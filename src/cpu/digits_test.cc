// Products of whole numbers (kernels.h, Digits): blocks that are exact and blocks that are not give the definition's bits.
#include <algorithm>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/test_values.h"

namespace deepinfer {
namespace {

// e4m3 codes: sign, exponent, mantissa; 0x01 is 2^-9, 0x7E is 448.
uint8_t code_between(Random& random, int least, int most) {
  return static_cast<uint8_t>(random.between(least, most) | random.below(2) << 7);
}

// 448 six times, 40, 2.5, 0.15625, 5 / 512: 1,398,101 in units of 2^-9, the most of which twelve times are below 2^24.
constexpr uint8_t kBorder[] = {0x7E, 0xFE, 0x7E, 0x7E, 0xFE, 0x7E, 0x62, 0x42, 0x22, 0x05};

// A block of 32 codes of one of nine kinds.
void fill_block(Random& random, int kind, uint8_t* codes) {
  for (int i = 0; i < kScaleBlock; ++i) {
    switch (kind) {
      case 0: codes[i] = code_between(random, 0, 0x7E); break;
      case 1: codes[i] = code_between(random, 0x50, 0x7E); break;
      case 2: codes[i] = static_cast<uint8_t>(random.below(2) << 7); break;
      case 3: codes[i] = i == 7 ? uint8_t{1} : code_between(random, 0x7C, 0x7E); break;
      case 4: codes[i] = i == 9 ? uint8_t{0x7E} : code_between(random, 0, 0x0F); break;
      case 5:
      case 6: codes[i] = i < 10 ? kBorder[i] : static_cast<uint8_t>(kind == 6 && i == 20); break;
      case 7: codes[i] = code_between(random, 0, 0x07); break;
      default: codes[i] = i == 3 ? uint8_t{0x7F} : code_between(random, 0x40, 0x7E); break;
    }
  }
}

struct Case {
  std::vector<uint8_t> codes, scales;
  Weight weight;
  MatmulParams params{};
  int32_t rows;
};

void fill(Random& random, int rows, int n, int k, bool extreme, Case& out) {
  out.rows = rows;
  out.codes.resize(static_cast<size_t>(rows * k));
  for (size_t at = 0; at < out.codes.size(); at += kScaleBlock) fill_block(random, random.below(extreme ? 9 : 8), &out.codes[at]);
  out.weight = random_weight(random, WeightFormat::kFp4, n, k);
  out.scales = random.e8m0(int64_t{rows} * k / kScaleBlock);
  if (extreme) {
    for (auto& scale : out.scales) scale = static_cast<uint8_t>(random.below(247));
    for (auto& scale : out.weight.scales) scale = static_cast<uint8_t>(random.below(247));
  }
  out.params.rows = {&out.rows, rows};
  out.params.codes = out.codes.data();
  out.params.scales = out.scales.data();
  out.params.w = out.weight.matrix;
  out.params.groups = 1;
  out.params.y_type = OutputType::kF32;
  out.params.y_stride = n;
  out.params.y_scale = 1.0f;
}

bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::isnan(x) ? std::isnan(y) : std::memcmp(&x, &y, sizeof x) == 0; });
}

TEST(CpuDigits, ExactAndInexactBlocksEqualDefinition) {
  const auto devices = all_devices();
  Random random(11);
  for (int trial = 0; trial < 40; ++trial) {
    const int rows = trial < 20 ? 1 + trial % 10 : random.between(11, 140), n = random.between(1, 70),
              k = 32 * random.between(1, 6);
    Case c;
    fill(random, rows, n, k, trial % 4 == 3, c);
    std::vector<float> want(static_cast<size_t>(rows * n)), got(want.size());
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < n; ++i) want[static_cast<size_t>(r * n + i)] = matmul_element(c.params, r, i);
    }
    for (const auto& device : devices) {
      for (const bool packed : {false, true}) {
        c.params.w = c.weight.matrix;
        Buffer room;
        Matrix* const weights[] = {&c.params.w};
        if (packed) room = *device->pack(weights);
        std::fill(got.begin(), got.end(), -7.0f);
        c.params.y = got.data();
        device->ops().matmul(c.params);
        EXPECT_TRUE(same_numbers(got, want))
            << describe(*device) << " rows " << rows << " n " << n << " k " << k << " packed " << packed;
      }
    }
  }
}

// The kinds of blocks above take every way through the kernels, and exactly the border's neighbour leaves the exact ones.
TEST(CpuDigits, EveryWayIsTaken) {
  if (!cpu::kAvx2Kernels.supported()) GTEST_SKIP();
  Random random(12);
  const auto digits_of_kind = [&](int kind) {
    uint8_t codes[kScaleBlock];
    const uint8_t scale = 127;
    float x[kScaleBlock];
    cpu::Digits digits;
    fill_block(random, kind, codes);
    dequantize_q8(codes, &scale, kScaleBlock, x);
    cpu::kAvx2Kernels.digitise(x, 1, &digits, 1);
    return digits;
  };
  EXPECT_EQ(digits_of_kind(1).num, 2);
  EXPECT_EQ(digits_of_kind(2).num, 2);
  EXPECT_EQ(digits_of_kind(3).num, 0);
  EXPECT_EQ(digits_of_kind(4).num, 3);
  EXPECT_EQ(digits_of_kind(5).num, 3);
  EXPECT_EQ(digits_of_kind(6).num, 0);
  EXPECT_EQ(digits_of_kind(7).num, 2);
  EXPECT_EQ(digits_of_kind(8).num, 0);
  const cpu::Digits border = digits_of_kind(5);
  EXPECT_EQ(border.half_unit, 0x1p-10f);
  EXPECT_EQ(border.digit[0][0] + 256 * border.digit[1][0] + 65536 * border.digit[2][0], 229376);
}

}  // namespace
}  // namespace deepinfer
