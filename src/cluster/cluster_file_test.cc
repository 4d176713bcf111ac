#include "cluster/cluster_file.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(ClusterFile, TablesBecomeCommandLines) {
  const auto cluster = parse_cluster_file(
      "[router]\nport = 9000\npolicy = \"prefix\"\n[worker]\ncount = 3\nspec_tokens = 2\nfetch-images = true\n", "c.toml");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->router, (std::vector<std::string>{"--policy", "prefix", "--port", "9000"}));
  ASSERT_EQ(cluster->groups.size(), 1u);
  EXPECT_EQ(cluster->groups[0].words, (std::vector<std::string>{"--fetch-images", "--spec-tokens", "2"}));
  EXPECT_EQ(cluster->groups[0].min, 3);
  EXPECT_EQ(cluster->groups[0].max, 3);
  const auto scaled =
      parse_cluster_file("[worker]\nmin = 1\nmax = 4\n[scale]\nwindow = 2.5\nout_after = 1\nkey = \"k\"\n", "c.toml");
  ASSERT_TRUE(scaled) << scaled.error().message;
  EXPECT_EQ(scaled->groups[0].max, 4);
  EXPECT_EQ(scaled->scale.window_us, 2'500'000);
  EXPECT_EQ(scaled->scale_key, "k");
  EXPECT_TRUE(scaled->groups[0].words.empty());
  EXPECT_TRUE(parse_cluster_file("[etcd]\nstart = true\n", "c.toml")->starts_etcd);
  EXPECT_EQ(parse_cluster_file("[etcd]\nendpoints = \"http://a:1\"\n", "c.toml")->etcd, "http://a:1");
  const auto apart = parse_cluster_file("[encode]\n[decode]\nthreads = 1\n[prefill]\nmax = 2\n", "c.toml");
  ASSERT_TRUE(apart) << apart.error().message;
  ASSERT_EQ(apart->groups.size(), 3u);
  EXPECT_EQ(apart->groups[0].words, (std::vector<std::string>{"--threads", "1", "--role", "decode"}));
  EXPECT_EQ(apart->groups[2].max, 2);
  EXPECT_EQ(parse_cluster_file("", "c.toml")->groups[0].role, "all");
}

TEST(ClusterFile, FaultsHaveTheirLine) {
  const auto fault = [](const char* text) { return parse_cluster_file(text, "c.toml").error().message; };
  EXPECT_EQ(fault("[router]\n[wroker]\n"),
            "c.toml:2: unknown 'wroker': there are [router], [worker], [encode], [prefill], [decode], [scale] and [etcd]");
  EXPECT_EQ(fault("[encode]\n"), "c.toml: workers of [encode] answer nothing: add [worker] or [decode]");
  EXPECT_EQ(fault("[worker]\ncount = 0\n"), "c.toml:2: 'count' must be from 1 to 64");
  EXPECT_EQ(fault("[worker]\nport = [1]\n"), "c.toml:2: 'port' must be a text, a number, true or false");
  EXPECT_EQ(fault("router = 1\n"), "c.toml:1: 'router' must be a table: [router]");
  EXPECT_EQ(fault("[scale]\nwindow = 0\n"), "c.toml:2: 'window': [scale] has window and out_after in seconds, and key");
  EXPECT_EQ(fault("[etcd]\nstart = 1\n"), "c.toml:2: 'start': [etcd] has endpoints = \"http://HOST:PORT,...\" or start = true");
  EXPECT_TRUE(fault("[worker\n").starts_with("c.toml:1: "));
}

}  // namespace
}  // namespace deepinfer
