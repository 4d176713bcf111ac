#include <gtest/gtest.h>

#include "api/schema_check.h"
#include "api/strict_schema.h"

namespace deepinfer {
namespace {

std::string check(std::string_view schema) {
  const Status status = check_schema(*Json::parse(schema));
  return status ? "" : status.error().message;
}

std::string strict(std::string_view schema, StrictUse use = StrictUse::kToolParameters) {
  const auto result = normalise_strict(*Json::parse(schema), use);
  return result ? result->dump() : result.error().message;
}

TEST(SchemaCheck, Accepts) {
  for (const char* schema :
       {"true", "{}", R"({"type": ["string", "null"]})", R"({"$defs": {"a/b": {}}, "$ref": "#/$defs/a~1b"})", R"({"$ref": "#"})",
        R"({"properties": {"pattern": {"type": "string", "pattern": "^(a|b)+[^]x]*?$"}}, "unknown": 5})",
        R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, {}]})", R"({"minLength": 2.0})"}) {
    EXPECT_EQ(check(schema), "") << schema;
  }
}

TEST(SchemaCheck, Refuses) {
  EXPECT_EQ(check("7"), "7 is not of types \"boolean\", \"object\"");
  EXPECT_EQ(check(R"({"required": "a"})"), "\"a\" is not of type \"array\"");
  EXPECT_EQ(check(R"({"allOf": []})"), "[] has less than 1 item");
  EXPECT_EQ(check(R"({"pattern": "a**"})"), "\"a**\" is not a \"regex\"");
  EXPECT_EQ(check(R"({"properties": {"a": {"$ref": "#/x"}}})"), "Pointer '/x' does not exist");
  EXPECT_NE(check(R"({"type": "text"})"), "");
  EXPECT_NE(check(R"({"minItems": -1})"), "");
  EXPECT_NE(check(R"({"multipleOf": 0})"), "");
  EXPECT_NE(check(R"({"$ref": "https://elsewhere.example/x"})"), "");
}

TEST(StrictSchema, NormalForm) {
  EXPECT_EQ(
      strict(R"({"title": "T", "required": ["b", "a"], "properties": {"a": {"description": "d", "minLength": 1, "type": "string"},
                       "b": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": ["string", "null"]}]}}},
                       "type": "object", "description": "D"})"),
      R"({"type":"object","properties":{"a":{"type":"string","description":"d"},)"
      R"("b":{"type":"array","items":{"anyOf":[{"type":"integer"},{"type":["string","null"]}]}}},)"
      R"("additionalProperties":false,"required":["a","b"],"description":"D"})");
}

TEST(StrictSchema, Refuses) {
  EXPECT_EQ(strict(R"({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["x"]})"),
            "Required property 'x' not found in object");
  EXPECT_EQ(strict(R"({"type": "object"})", StrictUse::kAnswerFormat), "An object with no properties is not allowed.");
  EXPECT_EQ(strict(R"({"type": "string"})"), "The top level of the function parameters schema must be an object.");
  EXPECT_EQ(strict(R"({"type": "object", "properties": {"a": {"type": "array"}}})"),
            "Invalid tool parameters schema : missing field `items`");
  EXPECT_EQ(strict("[]", StrictUse::kAnswerFormat), "Invalid json schema: one of `type`, `anyOf`, `$ref` field is required");
}

}  // namespace
}  // namespace deepinfer
