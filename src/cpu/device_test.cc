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
  ASSERT_EQ(list.size(), 3u);
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
