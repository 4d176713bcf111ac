// Tiles: which products go by them, what they read, and which threads are ready for them. Their bits: matmul_test.cc,
// digits_test.cc.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cpu/test_values.h"

namespace deepinfer {
namespace {

// A product of e2m1 weights and quantised inputs that are usual for tiles.
struct Product {
  Weight weight;
  std::vector<uint8_t> codes, scales;
  std::vector<float> y;
  int32_t rows;
  MatmulParams params{};

  Product(Random& random, int32_t num_rows, int n, int k)
      : weight(random_weight(random, WeightFormat::kFp4, n, k)),
        codes(random.e4m3(int64_t{num_rows} * k)),
        scales(random.e8m0(int64_t{num_rows} * k / kScaleBlock)),
        y(static_cast<size_t>(num_rows * n)),
        rows(num_rows) {
    params.rows = {&rows, rows};
    params.codes = codes.data(), params.scales = scales.data();
    params.w = weight.matrix, params.groups = 1;
    params.y = y.data(), params.y_type = OutputType::kF32, params.y_stride = n, params.y_scale = 1.0f;
  }
  Product(const Product&) = delete;

  uint8_t& scale(int output, int block) { return weight.scales[static_cast<size_t>(output * params.w.k / kScaleBlock + block)]; }
  std::vector<float> defined() const {
    std::vector<float> out(y.size());
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < params.w.n; ++c) out[static_cast<size_t>(r * params.w.n + c)] = matmul_element(params, r, c);
    }
    return out;
  }
  // How many tile products it takes.
  int64_t run(Device& device, bool packed) {
    params.w = weight.matrix;
    Buffer room;
    Matrix* const weights[] = {&params.w};
    if (packed) room = *device.pack(weights);
    std::fill(y.begin(), y.end(), -7.0f);
    const int64_t before = cpu::emulated_products;
    device.ops().matmul(params);
    return cpu::emulated_products - before;
  }
};

// One output's scale in the first eight blocks and one in the next: their panels go by dot products, from the start or midway.
TEST(CpuTiles, StrangeScalesOfWeightsGoByDotProducts) {
  if (!cpu::kEmulatedTileKernels.supported()) GTEST_SKIP();
  const auto device = cpu::make_device_of({.threads = 2}, cpu::kEmulatedTileKernels);
  Random random(21);
  for (const int rows : {9, 17, 129}) {
    Product product(random, rows, 70, 544);
    const int64_t usual[] = {product.run(*device, false), product.run(*device, true)};
    for (const uint8_t scale : {0, 60, 200}) {
      product.scale(5, 0) = product.scale(40, 12) = scale;
      const std::vector<float> want = product.defined();
      for (const bool packed : {false, true}) {
        const int64_t products = product.run(*device, packed);
        EXPECT_TRUE(same_bits(product.y, want)) << "rows " << rows << " scale " << int{scale} << " packed " << packed;
        EXPECT_TRUE(products > 0 && products < usual[packed]) << products << " of " << usual[packed];
      }
    }
  }
}

// A quantiser gives zeros the least scale.
TEST(CpuTiles, BlocksOfZerosStayOnTiles) {
  if (!cpu::kEmulatedTileKernels.supported()) GTEST_SKIP();
  const auto device = cpu::make_device_of({.threads = 1}, cpu::kEmulatedTileKernels);
  Random random(22);
  Product product(random, 17, 40, 320);
  const int64_t usual = product.run(*device, true);
  for (const uint8_t scale : {0, 1, 246}) {
    for (int output = 0; output < 40; output += 3) {
      product.scale(output, 9) = scale;
      for (int i = 0; i < 16; ++i) product.weight.data[static_cast<size_t>(output * 160 + 144 + i)] = i % 2 ? 0x80 : 0x08;
    }
    const std::vector<float> want = product.defined();
    EXPECT_EQ(product.run(*device, true), usual);
    EXPECT_TRUE(same_bits(product.y, want)) << int{scale};
  }
}

std::atomic<int64_t> missing_bytes;

// Tiles are as long as the longest cut of the rows, so they read lines behind the last row; the kinds lie behind those.
void look_for_lines(const cpu::MatmulTile& t) {
  const int64_t cuts = (t.rows + 15) / 16, lines = cuts * ((t.rows + cuts - 1) / cuts);
  const auto* end = reinterpret_cast<const uint8_t*>(t.lines + (lines - 1) * t.line_stride + t.w.k);
  missing_bytes = std::max<int64_t>(missing_bytes, end - t.kinds);
}

TEST(CpuTiles, LinesBehindTheLastRowMayBeRead) {
  if (!cpu::kEmulatedTileKernels.supported()) GTEST_SKIP();
  cpu::Kernels kernels = cpu::kEmulatedTileKernels;
  kernels.matmul = look_for_lines;
  const auto device = cpu::make_device_of({.threads = 1}, kernels);
  Random random(23);
  for (const int rows : {17, 97, 121}) {
    missing_bytes = -1;
    Product(random, rows, 16, 5120).run(*device, true);
    EXPECT_LE(missing_bytes, 0) << rows;
  }
}

std::mutex begun_mutex;
std::set<std::thread::id> begun;

TEST(CpuTiles, EveryThreadBeginsAheadOfProducts) {
  cpu::Kernels kernels = cpu::kPortableKernels;
  kernels.begin_thread = [] {
    const std::lock_guard lock(begun_mutex);
    begun.insert(std::this_thread::get_id());
  };
  begun.clear();
  const auto device = cpu::make_device_of({.threads = 4}, kernels);
  EXPECT_EQ(begun.size(), 4u);
  Random random(24);
  Product product(random, 1, 16, 32);
  std::thread([&] { product.run(*device, false); }).join();
  EXPECT_EQ(begun.size(), 5u);
}

}  // namespace
}  // namespace deepinfer
