#include "sim/prefill_fleet.h"

#include <gtest/gtest.h>

#include "sim/block_cache.h"

namespace deepinfer {
namespace {

TEST(Trace, ReadsAndRefusesPrecisely) {
  const auto trace = parse_trace(R"({"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]})"
                                 "\n"
                                 R"({"timestamp": 5, "input_length": 512, "output_length": 0, "hash_ids": [0]})"
                                 "\n",
                                 "t");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[0].blocks, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(count_distinct_blocks(*trace), 2);
  const auto wrong = [](std::string_view line) { return parse_trace(line, "t").error().message; };
  EXPECT_EQ(wrong(R"({"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [0]})"),
            "t:1: 1 hash_ids do not fit input_length 600 in blocks of 512");
  EXPECT_EQ(wrong(R"({"input_length": 600})"), "t:1: timestamp must be a number, got null");
}

TEST(BlockCache, ChainsLoseTheirEnds) {
  BlockCache cache(4);
  std::vector<uint32_t> added, removed;
  cache.use(std::vector<uint32_t>{1, 2, 3}, added, removed);
  cache.use(std::vector<uint32_t>{1, 8, 9}, added, removed);
  EXPECT_EQ(removed, (std::vector<uint32_t>{3}));
  EXPECT_EQ(cache.match(std::vector<uint32_t>{1, 2, 3}), 2);
}

// Two workers, two prompts of 1,024 tokens at 1,024 tokens a second, both seen twice; arithmetic by hand.
TEST(PrefillFleet, CountsByHand) {
  const std::vector<TraceRequest> trace = {
      {0, 1024, 1, {1, 2}}, {0, 1024, 1, {3, 4}}, {10e6, 1024, 1, {3, 4}}, {20e6, 1024, 1, {1, 2}}};
  const FleetOptions options{.policy = RoutingPolicy::kDefault, .workers = 2, .tokens_per_s = 1024, .worker_blocks = 8};
  const FleetFigures ours = simulate_prefill(trace, options);
  EXPECT_EQ(ours.computed_tokens, 2 * 1024 + 2);  // the last token of a known prompt is computed again
  EXPECT_NEAR(ours.mean_first_token_s, (1 + 1 + 2.0 / 1024) / 4, 1e-9);
  EXPECT_DOUBLE_EQ(ours.max_over_mean_computed, 1);
  FleetOptions in_turn = options;
  in_turn.policy = RoutingPolicy::kRoundRobin;
  EXPECT_EQ(simulate_prefill(trace, in_turn).computed_tokens, 4 * 1024);
}

}  // namespace
}  // namespace deepinfer
