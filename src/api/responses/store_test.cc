#include "api/responses/store.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace deepinfer {
namespace {

StoredResponse stored(const std::string& text) {
  StoredResponse out;
  out.response = Json::object({{"id", "r"}, {"status", "completed"}, {"text", text}});
  out.items = Json::array();
  return out;
}

TEST(ResponseStore, TenantsDoNotMeet) {
  ResponseStore store({});
  ASSERT_TRUE(store.put("a", "r1", stored("x"), 0));
  EXPECT_TRUE(store.find("a", "r1", 1));
  EXPECT_FALSE(store.find("b", "r1", 1));
  EXPECT_FALSE(store.find("", "ar1", 1));
  const auto removed = store.remove("b", "r1", 1);
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(store.remove("a", "r1", 1));
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(ResponseStore, OldOnesGo) {
  ResponseStore store({.max_entries = 10, .max_bytes = 1 << 20, .max_age_us = 100});
  store.put("t", "r", stored("x"), 0);
  EXPECT_TRUE(store.find("t", "r", 100));
  EXPECT_FALSE(store.find("t", "r", 101));
}

TEST(ResponseStore, CancelStopsOnce) {
  ResponseStore store({});
  int stopped = 0;
  StoredResponse running = stored("x");
  running.is_running = true;
  running.cancel = [&] { ++stopped; };
  store.put("t", "r", std::move(running), 0);
  const auto cancelled = store.cancel("t", "r", 1);
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->at("status").as_string(), "cancelled");
  const auto again = store.cancel("t", "r", 2);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *cancelled);
  EXPECT_FALSE(store.cancel("u", "r", 2));
  EXPECT_EQ(stopped, 1);
  store.put("t", "done", stored("x"), 2);
  EXPECT_FALSE(store.cancel("t", "done", 3));
}

TEST(ResponseStore, WhatRunsIsNeverGivenUp) {
  ResponseStore store({.max_entries = 3, .max_bytes = 1 << 20, .max_age_us = 100});
  StoredResponse running = stored("x");
  running.is_running = true;
  store.put("t", "running", running, 0);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(store.put("t", "r" + std::to_string(i), stored("x"), 1));
  EXPECT_TRUE(store.find("t", "running", 1000));
  EXPECT_TRUE(store.put("t", "running 2", running, 1));
  EXPECT_TRUE(store.put("t", "running 3", running, 1));
  // There is no room left, and what is there stays.
  EXPECT_FALSE(store.put("t", "r", stored("x"), 1));
  StoredResponse large = stored(std::string(2 << 20, 'x'));
  EXPECT_FALSE(store.put("t", "running", large, 1));
  EXPECT_TRUE(store.find("t", "running", 1)->is_running);
  EXPECT_TRUE(store.put("t", "running", stored("done"), 1));
}

TEST(ResponseStore, StaysWithinItsLimits) {
  rc::check("never more entries or bytes than allowed; the newest that fits is there", [](const std::vector<uint16_t>& sizes) {
    const ResponseStoreLimits limits{.max_entries = 5, .max_bytes = 20000, .max_age_us = 1 << 20};
    ResponseStore store(limits);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::string id = "r" + std::to_string(i);
      const bool kept = store.put("t", id, stored(std::string(sizes[i], 'x')), static_cast<int64_t>(i));
      RC_ASSERT(store.size() <= limits.max_entries);
      RC_ASSERT(store.bytes() <= limits.max_bytes);
      RC_ASSERT(kept == (store.find("t", id, static_cast<int64_t>(i)) != nullptr));
    }
  });
}

TEST(ResponseStore, AFloodCostsNobodyElseTheirs) {
  for (const ResponseStoreLimits& limits : {ResponseStoreLimits{.max_entries = 8}, ResponseStoreLimits{.max_bytes = 20'000}}) {
    ResponseStore store(limits);
    store.put("quiet", "mine", stored("kept"), 0);
    for (int i = 0; i < 200; ++i) store.put("loud", "r" + std::to_string(i), stored(std::string(1000, 'x')), i);
    EXPECT_NE(store.find("quiet", "mine", 300), nullptr);
    EXPECT_NE(store.find("loud", "r199", 300), nullptr);
    EXPECT_EQ(store.find("loud", "r0", 300), nullptr);
  }
}

}  // namespace
}  // namespace deepinfer
