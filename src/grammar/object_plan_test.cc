#include "grammar/object_plan.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <functional>
#include <random>

#include "grammar/constraint.h"
#include "grammar/schema_compile.h"
#include "grammar/test_vocabulary.h"

namespace deepinfer {
namespace {

// Three keys, each absent, 1, "x" or null.
using Object = std::array<int, 3>;
constexpr const char* kValues[] = {"", "1", "\"x\"", "null"};

std::string text_of(const Object& object) {
  std::string out = "{";
  for (size_t key = 3; key-- > 0;) {
    if (object[key] != 0)
      out += fmt::format("{}\"{}\":{}", out.size() > 1 ? "," : "", static_cast<char>('a' + key), kValues[object[key]]);
  }
  return out + "}";
}

// A schema for some keys at random, with what it says.
struct Part {
  std::string schema;
  std::function<bool(const Object&)> holds;
};

Part random_part(std::mt19937& random) {
  const std::array<const char*, 3> types{"integer", "string", "null"};
  std::string properties, required;
  std::array<int, 3> wanted{};  // bits of the values that fit
  std::array<bool, 3> needed{};
  for (size_t key = 0; key < 3; ++key) {
    const char name = static_cast<char>('a' + key);
    const int one = static_cast<int>(random() % 3), two = static_cast<int>(random() % 3);
    if (random() % 4 != 0) {
      wanted[key] = 1 << (one + 1) | 1 << (two + 1);
      properties += fmt::format("{}\"{}\":{{\"type\":[\"{}\"{}]}}", properties.empty() ? "" : ",", name, types[one],
                                one == two ? "" : fmt::format(",\"{}\"", types[two]));
    }
    needed[key] = random() % 4 == 0;
    if (needed[key]) required += fmt::format("{}\"{}\"", required.empty() ? "" : ",", name);
  }
  return {fmt::format(R"({{"properties":{{{}}},"required":[{}]}})", properties, required), [=](const Object& object) {
            for (size_t key = 0; key < 3; ++key) {
              if (object[key] == 0 ? needed[key] : wanted[key] != 0 && (wanted[key] >> object[key] & 1) == 0) return false;
            }
            return true;
          }};
}

// Every object against what the parts say, and from each beginning of one that fits there is a way on.
TEST(ObjectPlan, ChoicesAreExact) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Part one = random_part(random), two = random_part(random), three = random_part(random);
    const int64_t most = random() % 3 == 0 ? 1 + static_cast<int64_t>(random() % 2) : 3;
    const bool once = random() % 2 == 0;
    const std::string parts = one.schema + "," + two.schema + "," + three.schema;
    const std::string text =
        fmt::format(
            R"({{"type":"object","maxProperties":{},"additionalProperties":false,"properties":{{"a":{{}},"b":{{}},"c":{{}}}},)",
            most) +
        (once ? "\"oneOf\":[" + parts + "]}" : "\"not\":{\"anyOf\":[" + parts + "]}}");
    const auto compiled = compile_json_schema(byte_vocabulary(), *Json::parse(text));
    bool some = false;
    for (int number = 0; number < 64; ++number) {
      const Object object{number % 4, number / 4 % 4, number / 16};
      const int count = (object[0] != 0) + (object[1] != 0) + (object[2] != 0);
      const int holding = one.holds(object) + two.holds(object) + three.holds(object);
      const bool fits = count <= most && holding == (once ? 1 : 0);
      some |= fits;
      if (!compiled) continue;
      EXPECT_EQ((*compiled)->matches(text_of(object)), fits) << text << "\n" << text_of(object);
    }
    // Values of other types may fit where none of these do.
    ASSERT_TRUE(compiled || !some) << text << ": " << compiled.error().message;
    if (!compiled) continue;
    for (int walk = 0; walk < 3; ++walk) {
      const auto mask = (*compiled)->start({});
      std::vector<uint32_t> words(8);
      std::string answer;
      while (!mask->complete() && answer.size() < 400) {
        ASSERT_EQ(mask->fill(words), MaskFill::kReady);
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < 256; ++token) {
          if (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) allowed.push_back(token);
        }
        ASSERT_FALSE(allowed.empty()) << text << "\n" << answer;
        const TokenId token = allowed[random() % allowed.size()];
        ASSERT_TRUE(mask->accept(token));
        answer += static_cast<char>(token);
      }
    }
  }
}

// Not to be in an open object of ten properties was ten shapes, and of two such a hundred.
TEST(ObjectPlan, OpenObjectsOfAChoiceAreFewShapes) {
  std::string choices;
  for (int i = 0; i < 3; ++i) {
    std::string properties;
    for (int k = 0; k < 10; ++k) properties += fmt::format("{}\"p{}_{}\":{{\"type\":\"boolean\"}}", k ? "," : "", i, k);
    choices += fmt::format(R"({}{{"properties":{{{}}}}})", i ? "," : "", properties);
  }
  RegexArena arena;
  const auto plan = compile_plan(arena, *Json::parse(R"({"type":"object","oneOf":[)" + choices + "]}"));
  ASSERT_TRUE(plan) << plan.error().message;
  const ValuePlan& top = (*plan)->values[(*plan)->root];
  ASSERT_EQ(top.objects.size(), 3u);
  EXPECT_EQ(top.objects[0].wanted, 3u);
}

// Searches and comparisons of choices end like everything else: these would take 10^10 steps, or minutes.
TEST(ObjectPlan, WideAndManyChoicesAreRefused) {
  std::string parts, names;
  for (int i = 0; i < 12; ++i) {
    std::string properties;
    for (int k = 0; k < 10; ++k) properties += fmt::format("{}\"p{}_{}\":{{\"type\":\"boolean\"}}", k ? "," : "", i, k);
    parts += fmt::format(R"({}{{"properties":{{{}}}}})", i ? "," : "", properties);
  }
  for (int i = 0; i < 40'000; ++i) names += fmt::format("{}\"n{}\":false", i ? "," : "", i);
  for (const std::string& text : {R"({"type":"object","maxProperties":10,"not":{"anyOf":[)" + parts + "]}}",
                                  R"({"type":"object","not":{"properties":{)" + names + "}}}"}) {
    RegexArena arena;
    const auto plan = compile_plan(arena, *Json::parse(text));
    ASSERT_FALSE(plan) << text.substr(0, 80);
    EXPECT_NE(plan.error().message.find("grows too large"), std::string::npos) << plan.error().message;
  }
}

}  // namespace
}  // namespace deepinfer
