#include "cluster/membership.h"

#include <gtest/gtest.h>

#include "cluster/member_table.h"

namespace deepinfer {
namespace {

Member member(uint16_t port, const char* epoch = "1") { return {.at = {"h", port}, .epoch = epoch}; }

TEST(Membership, EntriesReadBack) {
  const Member there{.at = {"fe80::1", 8101}, .epoch = "77", .role = "prefill"};
  const std::string key = member_key("c1", there);
  EXPECT_EQ(key, "/deepinfer/c1/workers/prefill/[fe80::1]:8101");
  const auto read = parse_member("c1", key, member_value(there));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->at, there.at);
  EXPECT_EQ(read->epoch, "77");
  EXPECT_EQ(read->role, "prefill");
  for (const char* value : {"", "{}", "[]", R"({"address":"a","epoch":"1"})", R"({"address":"a:1,b:2","epoch":"1"})"})
    EXPECT_FALSE(parse_member("c1", key, value)) << value;
  EXPECT_FALSE(parse_member("other", key, member_value(there)));
}

TEST(Membership, EndpointsOfEtcd) {
  const auto read = parse_etcd_endpoints("10.0.0.5:2379,https://etcd/");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (std::vector<std::string>{"http://10.0.0.5:2379", "https://etcd"}));
  EXPECT_FALSE(parse_etcd_endpoints(""));
  EXPECT_FALSE(parse_etcd_endpoints("http://a:1/v3"));
}

TEST(MemberTable, WhoLeftTheListKeepsItsLinkForAWhile) {
  MemberTable table(2);
  EXPECT_EQ(table.hear(std::vector{member(1), member(2)}, 0).connect, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(table.hear({}, 1'000'000).connect.empty());
  EXPECT_TRUE(table.hear(std::vector{member(1)}, 4'000'000).connect.empty()) << "it was never away";
  EXPECT_TRUE(table.due(10'900'000).empty());
  EXPECT_EQ(table.due(11'100'000), (std::vector<int32_t>{1}));
  EXPECT_TRUE(table.lost(0)) << "a member whose link broke is called again";
  EXPECT_FALSE(table.lost(1));
  EXPECT_EQ(table.at(1), nullptr);
  EXPECT_EQ(table.hear(std::vector{member(1), member(3), member(4)}, 12'000'000).connect, (std::vector<int32_t>{1}));
  EXPECT_EQ(table.left_out(), 1);
}

TEST(MemberTable, AnOlderEntryOfTheSameAddressIsNobody) {
  MemberTable table(2);
  Member now = member(1, "900-77"), before = member(1, "899-123456");
  before.role = "prefill";
  EXPECT_EQ(table.hear(std::vector{before, now}, 0).connect.size(), 1u);
  for (const auto& list : {std::vector{now, before}, std::vector{before, now}, std::vector{now}}) {
    const auto turn = table.hear(list, 1);
    EXPECT_TRUE(turn.close.empty() && turn.connect.empty());
  }
  EXPECT_EQ(table.at(0)->epoch, "900-77");
}

TEST(MemberTable, ANewEpochIsANewWorker) {
  MemberTable table(1);
  table.hear(std::vector{member(1)}, 0);
  const auto turn = table.hear(std::vector{member(1, "2")}, 1);
  EXPECT_EQ(turn.close, (std::vector<int32_t>{0}));
  EXPECT_TRUE(turn.connect.empty());
  EXPECT_TRUE(table.lost(0));
}

}  // namespace
}  // namespace deepinfer
