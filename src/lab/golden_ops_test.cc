#include "lab/golden_ops.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "cpu/room.h"

namespace deepinfer {
namespace {

const std::string kGoldenDir = std::string(DEEPINFER_SOURCE_DIR) + "/../shared/golden/model";

void expect_all_pass(Device& device) {
  const auto counts = run_ops_goldens(kGoldenDir, device);
  ASSERT_TRUE(counts.ok()) << counts.error().message;
  for (const auto& failure : counts->failures) ADD_FAILURE() << failure;
  EXPECT_GE(counts->passed, 60);
}

TEST(OpsGoldens, EveryKernelSet) {
  if (!is_directory(kGoldenDir)) GTEST_SKIP() << "left out: " << kGoldenDir << " is absent";
  for (const auto& kernels : list_cpu_kernels()) {
    if (!kernels.supported) continue;
    SCOPED_TRACE(kernels.isa);
    auto device = make_cpu_device({.threads = 2, .isa = kernels.isa});
    ASSERT_TRUE(device.ok());
    expect_all_pass(**device);
  }
}

TEST(OpsGoldens, DelayedDevice) {
  if (!is_directory(kGoldenDir)) GTEST_SKIP() << "left out: " << kGoldenDir << " is absent";
  auto device = make_delayed_device({.threads = 2});
  ASSERT_TRUE(device.ok());
  expect_all_pass(**device);
}

}  // namespace
}  // namespace deepinfer
