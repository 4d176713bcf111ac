#include "lab/cache_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

namespace deepinfer {
namespace {

TEST(CacheTrace, IsReadAndABadLineIsNamed) {
  const std::string path = testing::TempDir() + "trace.jsonl";
  const auto line = [](const char* ids) {
    return std::string("{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": ") + ids + "}\n";
  };
  std::ofstream(path) << line("[7, 9]") << line("[7, 8]");
  const auto trace = read_cache_trace(path);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->distinct, 3);
  EXPECT_EQ(trace->prompts, (std::vector<std::vector<int32_t>>{{0, 1}, {0, 2}}));
  std::ofstream(path) << line("[7, 9]") << line("[7]");
  EXPECT_FALSE(read_cache_trace(path));
}

// Conversations that go on among questions that never come back.
CacheTrace conversations() {
  CacheTrace trace;
  std::mt19937 random(3);
  std::vector<std::vector<int32_t>> talks(12);
  const auto add = [&](const std::vector<int32_t>& prompt) {
    trace.prompts.push_back(prompt);
    trace.blocks += static_cast<int64_t>(prompt.size());
  };
  for (int i = 0; i < 600; ++i) {
    auto& talk = talks[random() % talks.size()];
    for (uint32_t more = talk.empty() ? 4 : 1; more > 0; --more) talk.push_back(trace.distinct++);
    add(talk);
    if (talk.size() > 20) talk.clear();
    std::vector<int32_t> once;
    for (int block = 0; block < 6; ++block) once.push_back(trace.distinct++);
    add(once);
  }
  return trace;
}

TEST(CacheTrace, TheDefaultIsBetweenLruAndTheOptimum) {
  const CacheTrace trace = conversations();
  for (const int32_t room : {60, 120, 240, trace.distinct}) {
    const int64_t lru = replay_trace(trace, room, EvictionPolicy::kLru), ours = replay_trace(trace, room, EvictionPolicy::kUses);
    const int64_t best = replay_best(trace, room);
    EXPECT_GE(ours, lru) << room;
    EXPECT_GE(best, ours) << room;
    if (room == trace.distinct) {
      EXPECT_EQ(lru, best);
    }
  }
  // Where it matters it is worth something.
  EXPECT_GT(replay_trace(trace, 120, EvictionPolicy::kUses), replay_trace(trace, 120, EvictionPolicy::kLru) * 11 / 10);
}

}  // namespace
}  // namespace deepinfer
