#include "api/json_body.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace deepinfer {
namespace {

std::string error_of(std::string_view body) {
  const auto json = parse_json_body(body);
  return json ? "accepted" : json.error().message;
}

TEST(JsonBody, SaysWhatAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "EOF while parsing a value at line 1 column 0"},
      {"{\"a\": 1", "EOF while parsing an object at line 1 column 7"},
      {"[1, 2", "EOF while parsing a list at line 1 column 5"},
      {"{\"a\n", "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"},
      {"[1,]", "trailing comma at line 1 column 4"},
      {"{\"a\":1,}", "trailing comma at line 1 column 8"},
      {"{a: 1}", "key must be a string at line 1 column 2"},
      {"{\"a\" 1}", "expected `:` at line 1 column 6"},
      {"[1 2]", "expected `,` or `]` at line 1 column 4"},
      {"{} x", "trailing characters at line 1 column 4"},
      {"\n\n  tru", "EOF while parsing a value at line 3 column 5"},
      {"[nul]", "expected ident at line 1 column 5"},
      {"\"\\q\"", "invalid escape at line 1 column 3"},
      {"\"\\ud800x\"", "unexpected end of hex escape at line 1 column 8"},
      {"\"\\udc00\"", "lone leading surrogate in hex escape at line 1 column 7"},
      {"-", "EOF while parsing a value at line 1 column 1"},
      {"1.x", "invalid number at line 1 column 3"},
      {"[1e999]", "number out of range at line 1 column 6"},
      {"/* no */ 1", "expected value at line 1 column 1"},
      {"\"\xff\"", "invalid unicode code point at line 1 column 3"},
  };
  for (const auto& [body, want] : cases) EXPECT_EQ(error_of(body), std::string("invalid JSON request: ") + want) << body;
}

TEST(JsonBody, DepthIsBounded) {
  EXPECT_EQ(error_of(std::string(127, '[') + std::string(127, ']')), "accepted");
  EXPECT_EQ(error_of(std::string(128, '[') + std::string(128, ']')),
            "invalid JSON request: recursion limit exceeded at line 1 column 128");
  EXPECT_NE(error_of(std::string(1000000, '[')), "accepted");
}

TEST(JsonBody, RepeatedKeys) {
  const auto json = parse_json_body(R"({"a": 1, "b": 2, "a": 3})");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->dump(), R"({"a":3,"b":2})");
}

TEST(JsonBody, AcceptsExactlyWhatTheParserAccepts) {
  rc::check("checker and parser agree", [] {
    const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn\\u \n";
    const std::string body = *rc::gen::container<std::string>(rc::gen::elementOf(alphabet));
    const auto checked = parse_json_body(body);
    if (checked) RC_ASSERT(Json::parse(body).ok());
    if (!checked) RC_ASSERT(checked.error().message.substr(0, 21) == "invalid JSON request:");
  });
}

}  // namespace
}  // namespace deepinfer
