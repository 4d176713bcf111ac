#include "api/responses/input_items.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

Json items(int count) {
  Json out = Json::array();
  for (int i = 0; i < count; ++i) out.push_back(Json::object({{"role", "user"}, {"content", std::to_string(i)}}));
  return out;
}

TEST(InputItems, PagesInBothOrders) {
  const auto newest = input_item_list("r", items(25), "");
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->at("data").size(), 20u);
  EXPECT_EQ(newest->at("first_id"), Json("in_r_24"));
  EXPECT_EQ(newest->at("has_more"), Json(true));
  const auto rest = input_item_list("r", items(25), "after=" + newest->at("last_id").as_string());
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->at("data").size(), 5u);
  EXPECT_EQ(rest->at("has_more"), Json(false));
  EXPECT_EQ(rest->at("data")[4].at("content")[0].dump(), R"({"type":"input_text","text":"0"})");
  const auto oldest = input_item_list("r", items(3), "order=asc&limit=2");
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->at("first_id"), Json("in_r_0"));
  EXPECT_EQ(oldest->at("has_more"), Json(true));
  const auto none = input_item_list("r", Json::array(), "");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->at("first_id").is_null());
}

TEST(InputItems, RefusesWhatIsNoPage) {
  for (const char* query : {"limit=0", "limit=101", "limit=x", "limit=", "order=up", "after=nothing"})
    EXPECT_FALSE(input_item_list("r", items(2), query)) << query;
  EXPECT_TRUE(input_item_list("r", items(2), "unknown=1&&x"));
}

}  // namespace
}  // namespace deepinfer
