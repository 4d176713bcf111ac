// The choice of kernels, and the delayed device.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/test_values.h"

namespace deepinfer {
namespace {

TEST(Cpu, ChoosesAndForcesKernels) {
  const auto list = list_cpu_kernels();
  ASSERT_EQ(list.size(), 7u);
  auto best = make_cpu_device();
  ASSERT_TRUE(best.ok());
  bool first = true;
  for (const auto& kernels : list) {
    auto forced = make_cpu_device({.threads = 1, .isa = kernels.isa});
    EXPECT_EQ(forced.ok(), kernels.supported);
    if (forced.ok()) {
      EXPECT_EQ((*forced)->isa(), kernels.isa);
      if (first) {
        EXPECT_EQ((*best)->isa(), kernels.isa);
      }
      first = false;
    } else {
      EXPECT_EQ(forced.error().code, ErrorCode::kUnsupported);
    }
  }
  EXPECT_EQ(make_cpu_device({.threads = 1, .isa = "mmx"}).error().code, ErrorCode::kInvalidArgument);
}

// GCC 12 fused the products of a rotation with their sum and difference although contraction is off; a GPU did not.
TEST(Cpu, RotationRoundsEachProduct) {
  Random random(8);
  const int n = 64, heads = 3, dim = 64;
  const auto x = random.bf16(int64_t{n} * heads * dim);
  const auto table = random.f32(n * dim);
  std::vector<Bf16> want = x;
  for (size_t i = 0; i < want.size(); i += 2) {
    const size_t at = i / (heads * dim) * dim + i % dim;
    volatile float ac = to_float(x[i]) * table[at], bs = to_float(x[i + 1]) * table[at + 1];
    volatile float as = to_float(x[i]) * table[at + 1], bc = to_float(x[i + 1]) * table[at];
    want[i] = to_bf16(ac - bs);
    want[i + 1] = to_bf16(as + bc);
  }
  const int32_t count = n;
  for (const auto& device : all_devices()) {
    std::vector<Bf16> got = x;
    device->ops().rope({{&count, n}, got.data(), table.data(), heads, dim, dim, 0});
    EXPECT_TRUE(same_bits(got, want)) << describe(*device);
  }
}

TEST(Delayed, ReadsAndFreesInOrder) {
  auto device = make_delayed_device({.threads = 1});
  ASSERT_TRUE(device.ok());
  auto a = (*device)->allocate(64), b = (*device)->allocate(64);
  ASSERT_TRUE(a.ok() && b.ok());
  std::vector<int32_t> in = {1, 2, 3}, out(3);
  (*device)->upload(a->as<void>(), in.data(), 12);
  (*device)->copy(b->as<void>(), a->as<void>(), 12);
  (*device)->download(out.data(), b->as<void>(), 12);
  in = {4, 5, 6};  // too early: the upload has not run
  EXPECT_EQ(out[0], 0);
  EXPECT_TRUE((*device)->wait((*device)->record()).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{4, 5, 6}));
  void* gone = a->as<void>();
  EXPECT_EQ(std::memcmp((*device)->translate(gone), in.data(), 12), 0);
  *a = Buffer();
  (*device)->fill_zero(gone, 4);
  const auto failed = (*device)->wait((*device)->record());
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("fill_zero"), std::string::npos);
  EXPECT_TRUE((*device)->wait((*device)->record()).ok());
  EXPECT_DEATH(*b->as<volatile int32_t>() = 1, "");
}

}  // namespace
}  // namespace deepinfer
