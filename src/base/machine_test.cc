#include "base/machine.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace deepinfer {
namespace {

TEST(Processors, LeastLimitOfTheControlGroups) {
  const std::string root = testing::TempDir() + "/processors";
  const auto put = [&](const std::string& file, const char* text) {
    std::filesystem::create_directories(std::filesystem::path(root + file).parent_path());
    ASSERT_TRUE(write_file(root + file, text));
  };
  put("/cpu.max", "max 100000\n");
  put("/a/cpu.max", "150000 100000\n");
  put("/a/b/cpu.max", "400000 100000\n");
  put("/cpu/c/cpu.cfs_quota_us", "-1\n");
  put("/cpu/c/cpu.cfs_period_us", "100000\n");
  put("/cpu,cpuacct/d/cpu.cfs_quota_us", "50000\n");
  put("/cpu,cpuacct/d/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root, "0::/\n"), 0);
  EXPECT_EQ(processor_quota(root, "0::/a\n"), 1.5);
  EXPECT_EQ(processor_quota(root, "3:cpuset:/\n0::/a/b\n"), 1.5);
  EXPECT_EQ(processor_quota(root, "1:cpu:/c\n0::/a/b"), 1.5);
  EXPECT_EQ(processor_quota(root, "1:cpu:/c\n"), 0);
  EXPECT_EQ(processor_quota(root, "1:cpu,cpuacct:/d\n0::/\n"), 0.5);
  EXPECT_EQ(processor_quota(root, "0::/not/there\n"), 0);
  EXPECT_EQ(processor_quota(root, "no line of it\n"), 0);
  EXPECT_GE(available_processors(), 1);
}

}  // namespace
}  // namespace deepinfer
