#include "host/prefix_lint.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::string_view hint(std::string_view before, std::string_view here, std::string_view there) {
  const auto found = lint_prefix(before, here, there);
  const auto turned = lint_prefix(before, there, here);
  EXPECT_EQ(found ? found->name : "", turned ? turned->name : "") << "either side may be the older one";
  return found ? found->name : "";
}

TEST(PrefixLint, NamesValuesThatChangeByThemselves) {
  EXPECT_EQ(hint("You are terse. Today is ", "2026-11-30, a Monday.", "2026-11-29, a Sunday."), "volatile value");
  EXPECT_EQ(hint("Today is 2026-11-", "30.", "29."), "volatile value");
  EXPECT_EQ(hint("It is ", "9:41 now", "10:02 now"), "volatile value");
  EXPECT_EQ(hint("Date: ", "Monday, 3", "Tuesday, 4"), "volatile value");
  EXPECT_EQ(hint("session 5f0c6a1e-", "7b1d-4c55-9e0a-0123456789ab\nHi", "0000-4c55-9e0a-ba9876543210\nHi"), "volatile value");
  EXPECT_EQ(hint("request 17", "01 of user", "02 of user"), "volatile value");
  const auto told = lint_prefix("Today is ", "2026-11-30.", "2026-11-29.");
  EXPECT_NE(told->advice.find("a date changes here (2026-11-30. was 2026-11-29.)"), std::string::npos) << told->advice;
}

TEST(PrefixLint, NamesAnotherOrder) {
  const std::string a = R"({"name": "look", "description": "", "parameters": {}})",
                    b = R"({"name": "find", "description": "x", "parameters": {}})";
  EXPECT_EQ(
      hint("### Tools\n\n{\"name\": \"", (a + "\n" + b + "\nUse them").substr(10), (b + "\n" + a + "\nUse them").substr(10)),
      "order of tools");
  EXPECT_EQ(hint("Facts:\n", "the sky is blue\nthe sea is deep\n", "the sea is deep\nthe sky is blue\n"), "order of lines");
}

TEST(PrefixLint, NamesJsonThatIsWrittenInAnotherWay) {
  EXPECT_EQ(hint("data: {\"a\":", " 1, \"b\": [1, 2], \"name\": \"river\"}", "1,\"b\":[1,2],\"name\":\"river\"}"),
            "spaces in JSON");
  EXPECT_EQ(hint("data: {\"", "city\": \"Rome\", \"days\": 3} go", "days\": 3, \"city\": \"Rome\"} go"), "order of keys");
}

TEST(PrefixLint, SaysNothingOfAnotherQuestion) {
  EXPECT_EQ(hint("What is ", "the capital of France?", "a good name for a fox?"), "");
  EXPECT_EQ(hint("", "", ""), "");
  EXPECT_EQ(hint("same", "", "more"), "");
  EXPECT_EQ(hint("data: {\"", "city\": \"Rome\"} go", "days\": 3} go"), "");
  EXPECT_EQ(hint("", "{\"", "}\""), "");
}

}  // namespace
}  // namespace deepinfer
