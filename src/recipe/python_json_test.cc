#include "recipe/python_json.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::string python(std::string_view text) { return python_json(*Json::parse(text)); }
std::string compact(std::string_view text) { return compact_json(*Json::parse(text)); }

TEST(PythonJson, SeparatorsAndOrder) {
  EXPECT_EQ(python(R"({"b":1,"a":[true,null,"x"]})"), R"({"b": 1, "a": [true, null, "x"]})");
  EXPECT_EQ(compact(R"({"b": 1, "a": []})"), R"({"b":1,"a":[]})");
}

TEST(PythonJson, Strings) { EXPECT_EQ(python(R"("\u00e4\/\n\u0001\"\\")"), R"("ä/\n\u0001\"\\")"); }

TEST(PythonJson, Numbers) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "1"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"-0", "-0.0"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456.75", "123456.75"},
      {"18446744073709551615", "18446744073709551615"},
      {"18446744073709551616", "1.8446744073709552e+19"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"5e-324", "5e-324"},
      {"1.50", "1.5"},
  };
  for (const auto& [text, want] : cases) EXPECT_EQ(python(text), want);
  EXPECT_EQ(compact("0.00001"), "0.00001");
  EXPECT_EQ(compact("0.0000001"), "1e-7");
  EXPECT_EQ(compact("1e21"), "1e+21");
}

TEST(PythonJson, RepeatedKeysKeepFirstPlaceLastValue) {
  EXPECT_EQ(python(R"({"a":1,"b":2,"a":{"c":3,"c":4}})"), R"({"a": {"c": 4}, "b": 2})");
}

TEST(PythonJson, RangeOfDoubles) {
  EXPECT_TRUE(numbers_fit_double(*Json::parse("[1e308, 99999999999999999999999]")));
  EXPECT_FALSE(numbers_fit_double(*Json::parse(R"({"a": [1e400]})")));
}

}  // namespace
}  // namespace deepinfer
