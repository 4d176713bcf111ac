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

TEST(Processors, ByNode) {
  const std::string root = testing::TempDir() + "/nodes";
  for (const auto& [node, list] : {std::pair{"/node0", "0\n"}, {"/node1", "4000-4001\n"}, {"/node2", "0-0,4002\n"}}) {
    std::filesystem::create_directories(root + node);
    ASSERT_TRUE(write_file(root + node + "/cpulist", list));
  }
  const auto nodes = processor_nodes(root);
  for (const auto& node : nodes) EXPECT_EQ(node, std::vector<int>{0});
  EXPECT_LE(nodes.size(), 2u);  // none of a process that may not run on the first processor
  EXPECT_TRUE(processor_nodes(root + "/not there").empty());
  const std::vector<std::vector<int>> uneven = {std::vector<int>(10), std::vector<int>(2), {0}};
  std::vector<int> threads(3);
  for (size_t part = 0; part < 26; ++part) ++threads[node_of_part(uneven, part, 26)];
  EXPECT_EQ(threads, (std::vector<int>{20, 4, 2}));
  EXPECT_EQ(node_of_part(uneven, 1, 2), 0u);
}

TEST(Memory, LeastLeftOfTheControlGroups) {
  const std::string root = testing::TempDir() + "/memory_groups";
  const auto put = [&](const std::string& file, const char* text) {
    std::filesystem::create_directories(std::filesystem::path(root + file).parent_path());
    ASSERT_TRUE(write_file(root + file, text));
  };
  put("/a/memory.max", "1000\n");
  put("/a/memory.current", "700\n");
  put("/a/memory.stat", "anon 500\nfile 200\ninactive_anon 1\nactive_file 50\ninactive_file 100\n");
  put("/a/b/memory.max", "max\n");
  put("/a/b/memory.current", "100\n");
  put("/memory/c/memory.limit_in_bytes", "500\n");
  put("/memory/c/memory.usage_in_bytes", "520\n");
  put("/memory/c/memory.stat", "inactive_file 7\nactive_file 7\ntotal_inactive_file 30\ntotal_active_file 10\n");
  EXPECT_EQ(memory_left(root, "0::/a/b\n"), 450);
  EXPECT_EQ(memory_left(root, "5:memory:/c\n1:cpu:/a\n"), 20);
  EXPECT_EQ(memory_left(root, "0::/not/there\n"), -1);
  EXPECT_GT(available_memory(), 0);
}

}  // namespace
}  // namespace deepinfer
