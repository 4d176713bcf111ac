#include "base/json_cursor.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/json.h"

namespace deepinfer {
namespace {

TEST(JsonCursor, ReadsWhatIsThere) {
  JsonCursor in(R"( {"a": [1, -2 ,3], "b":{"x":"}"}, "c" : "\u00e9\"" , "d": [], "e": null} )");
  std::string key, text;
  std::vector<int64_t> numbers;
  std::string_view raw;
  for (in.open_object(); in.next_member(key);) {
    int64_t number = 0;
    if (key == "a") {
      for (in.open_array(); in.next_item() && in.read_int64(number);) numbers.push_back(number);
    } else if (key == "c") {
      EXPECT_EQ(in.peek(), '"');
      EXPECT_TRUE(in.read_string(text));
    } else if (key == "d") {
      in.open_array();
      EXPECT_FALSE(in.next_item());
    } else {
      EXPECT_TRUE(in.skip_value(raw));
      EXPECT_EQ(raw, key == "b" ? R"({"x":"}"})" : "null");
    }
  }
  EXPECT_TRUE(in.finish());
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(text, "é\"");
}

TEST(JsonCursor, SaysWhereItFailed) {
  JsonCursor in("{\n  \"a\" 1}");
  std::string key;
  in.open_object();
  EXPECT_FALSE(in.next_member(key));
  EXPECT_FALSE(in.next_member(key));
  EXPECT_FALSE(in.finish());
  EXPECT_EQ(in.error().message, "line 2 column 7: expected ':'");
}

TEST(JsonCursor, RefusesBadStringsAndNumbers) {
  const auto error_of = [](std::string_view json, bool number) {
    JsonCursor in(json);
    std::string text;
    int64_t value = 0;
    if (number)
      in.read_int64(value);
    else
      in.read_string(text);
    return in.failed() ? in.error().message : "";
  };
  EXPECT_NE(error_of("\"\xFF\"", false), "");
  EXPECT_NE(error_of("\"a\nb\"", false), "");
  EXPECT_NE(error_of("\"a", false), "");
  EXPECT_NE(error_of("\"\\ud800\"", false), "");
  EXPECT_NE(error_of("\"\\", false), "");
  EXPECT_NE(error_of("1.5", true), "");
  EXPECT_NE(error_of("99999999999999999999", true), "");
  EXPECT_NE(error_of("x", true), "");
  EXPECT_NE(error_of("", true), "");
  EXPECT_EQ(error_of("12", true), "");
}

TEST(JsonCursor, RawStringsAreViews) {
  const std::string json = "\"plain text of some length\"";
  JsonCursor in(json);
  std::string_view out;
  std::string storage;
  ASSERT_TRUE(in.read_raw_string(out, storage));
  EXPECT_EQ(out, "plain text of some length");
  EXPECT_EQ(out.data(), json.data() + 1);
}

// Reads any value by asking the cursor what comes next.
bool read_value(JsonCursor& in, Json& out, int depth) {
  std::string text;
  std::string_view raw;
  if (in.peek() == '{' && depth < 50) {
    out = Json::object();
    for (in.open_object(); in.next_member(text);) {
      const std::string key = text;
      Json value;
      if (!read_value(in, value, depth + 1)) return false;
      out.members().emplace_back(key, value);
    }
  } else if (in.peek() == '[' && depth < 50) {
    out = Json::array();
    for (in.open_array(); in.next_item();) {
      Json value;
      if (!read_value(in, value, depth + 1)) return false;
      out.push_back(value);
    }
  } else if (in.peek() == '"') {
    if (in.read_string(text)) out = Json(text);
  } else if (in.skip_value(raw)) {
    auto value = Json::parse(raw);
    if (!value) return in.fail("bad value");
    out = *value;
  }
  return !in.failed();
}

TEST(JsonCursor, AgreesWithTheTreeOnDamagedText) {
  std::mt19937_64 random(4);
  const std::string good =
      R"({"a":[1,2,{"b":"c\n\u0041é"},[]],"d":{"e":{}},"f":true,"g":-1.5e3,"h":"long text 0123456789 abcdef"})";
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (size_t n = random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 2)
        text[at] = "{}[]\",:\\0 tx\x80"[random() % 13];
      else
        text.erase(at, random() % 4 + 1);
      if (text.empty()) text = "1";
    }
    JsonCursor in(text);
    Json value;
    const bool read = read_value(in, value, 0) && in.finish();
    const auto tree = Json::parse(text);
    ASSERT_EQ(read, tree.ok()) << text;
    if (!read) continue;
    ASSERT_EQ(value, *tree) << text;
  }
}

}  // namespace
}  // namespace deepinfer
