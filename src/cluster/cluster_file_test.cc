#include "cluster/cluster_file.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(ClusterFile, TablesBecomeCommandLines) {
  const auto cluster = parse_cluster_file(
      "[router]\nport = 9000\npolicy = \"prefix\"\n[worker]\ncount = 3\nspec_tokens = 2\nfetch-images = true\n", "c.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->router, (std::vector<std::string>{"--policy", "prefix", "--port", "9000"}));
  EXPECT_EQ(cluster->worker, (std::vector<std::string>{"--fetch-images", "--spec-tokens", "2"}));
  EXPECT_EQ(cluster->num_workers, 3);
}

TEST(ClusterFile, FaultsHaveTheirLine) {
  const auto fault = [](const char* text) { return parse_cluster_file(text, "c.toml").error().message; };
  EXPECT_EQ(fault("[router]\n[wroker]\n"), "c.toml:2: unknown 'wroker': there are [router] and [worker]");
  EXPECT_EQ(fault("[worker]\ncount = 0\n"), "c.toml:2: 'count' is of [worker] and from 1 to 64");
  EXPECT_EQ(fault("[worker]\nport = [1]\n"), "c.toml:2: 'port' must be a text, a number, true or false");
  EXPECT_EQ(fault("router = 1\n"), "c.toml:1: 'router' must be a table: [router]");
  EXPECT_TRUE(fault("[worker\n").starts_with("c.toml:1: "));
}

}  // namespace
}  // namespace deepinfer
