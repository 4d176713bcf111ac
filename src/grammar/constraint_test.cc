#include "grammar/constraint.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <random>
#include <thread>

#include "base/file.h"

namespace deepinfer {
namespace {

std::shared_ptr<const Vocabulary> byte_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"\"}", "\":", "\",\"", "true", "null", "{\"", "}}", "12", "  ", "a\":1", "é\""})
    tokens.emplace_back(more);
  return Vocabulary::create(tokens);
}

std::shared_ptr<const Constraint> schema(std::string_view text, const SchemaOptions& options = {}) {
  const auto json = Json::parse(text);
  EXPECT_TRUE(json) << text;
  auto out = compile_json_schema(byte_vocabulary(), *json, options);
  EXPECT_TRUE(out) << text << ": " << (out ? "" : out.error().message);
  return out ? *out : nullptr;
}

std::string refusal(std::string_view text) {
  const auto out = compile_json_schema(byte_vocabulary(), *Json::parse(text));
  return out ? "accepted" : out.error().message;
}

struct Case {
  const char* schema;
  std::vector<const char*> valid, invalid;
};

TEST(Schema, AcceptsExactlyTheValid) {
  const std::vector<Case> cases{
      {R"({"type":"integer","minimum":-3,"exclusiveMaximum":12,"multipleOf":3})",
       {"-3", "0", "9", "-0"},
       {"12", "4", "-6", "3.5", "\"3\"", "3.0"}},
      {R"({"type":"number","minimum":0.1,"maximum":0.25})", {"0.1", "0.2", "0.25", "0.250"}, {"0.09", "0.26", "1", "-0.1"}},
      {R"({"type":"string","minLength":2,"maxLength":3,"pattern":"^[a-z😀]+$"})",
       {"\"ab\"", "\"a😀z\""},
       {"\"a\"", "\"abcd\"", "\"aB\"", "7"}},
      {R"({"type":"string","pattern":"\\n"})", {"\"a\\nb\"", "\"\\u000a\""}, {"\"n\""}},
      {R"({"enum":["a",1,null,[1,{"k":true}]]})", {"\"a\"", "1", "null", "[1,{\"k\":true}]"}, {"\"b\"", "[1]", "true", "1.0"}},
      // 1.0 is an integer, which no answer writes so; what excludes integers excludes it.
      {R"({"not":{"type":"integer"}})", {"1.5", "\"1\""}, {"1", "1.0", "1.00"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"1.5"}, {"1", "1.0"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"1.0"}},
      {R"({"type":"number","minimum":1})", {"1", "1.0", "2.50"}, {"0.9"}},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","contentEncoding":"base64","type":"string"})",
       {"\"\"", "\"YWJj\"", "\"YQ==\""},
       {"\"YQ=\"", "\"a%bc\""}},
      {R"({"contentEncoding":"base64"})", {"\"a%bc\""}, {}},
      {R"({"properties":{"a":{"type":"integer"},"b":{}},"required":["b"],"additionalProperties":false,"type":"object"})",
       {"{\"b\":1}", "{\"b\":[],\"a\":2}", "{ \"a\": 1, \"b\": {} }"},
       {"{\"a\":1}", "{\"b\":1,\"b\":2}", "{\"b\":1,\"c\":2}", "{}", "[]"}},
      {R"({"type":"object","patternProperties":{"^x":{"type":"integer"}},"properties":{"xy":{"minimum":5}}})",
       {"{\"xy\":5,\"x1\":1,\"z\":\"s\"}"},
       {"{\"xy\":4}", "{\"x\":\"s\"}", "{\"xy\":\"s\"}"}},
      {R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5", "\"x\""}, {"3", "1.5"}},
      {R"({"not":{"type":["integer","string"]}})", {"1.5", "null", "[]"}, {"1", "\"\""}},
      {R"({"if":{"properties":{"t":{"const":1}},"required":["t"]},"then":{"required":["u"]},"else":{"required":["v"]},"type":"object"})",
       {"{\"t\":1,\"u\":0}", "{\"v\":0}", "{\"u\":0,\"t\":1}", "{\"t\":2,\"v\":1}"},
       {"{\"t\":1,\"v\":0}", "{}", "{\"t\":1}"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"},"minItems":2,"maxItems":3})",
       {"[1,\"a\"]", "[1, \"a\", \"b\"]"},
       {"[1]", "[\"a\",\"b\"]", "[1,\"a\",\"b\",\"c\"]"}},
      {R"({"type":"array","contains":{"const":7},"minContains":2,"maxContains":2})",
       {"[7,7]", "[7,1,7]"},
       {"[7]", "[7,7,7]", "[]"}},
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},
          "required":["kids"],"additionalProperties":false}}})",
       {"{\"kids\":[]}", "{\"kids\":[{\"kids\":[]},{\"kids\":[]}]}"},
       {"{}", "{\"kids\":[{}]}"}},
      {R"({"type":"object","minProperties":1,"maxProperties":2,"propertyNames":{"maxLength":2}})",
       {"{\"a\":1}", "{\"a\":1,\"bc\":2}"},
       {"{}", "{\"abc\":1}", "{\"a\":1,\"b\":1,\"c\":1}"}},
      // Names that the schema itself describes, which ended the process.
      {R"({"propertyNames":{"$ref":"#"},"maxLength":2})", {"{\"ab\":1}", "\"ab\"", "{}"}, {"{\"abc\":1}", "\"abc\""}},
      {R"({"type":"string","format":"date"})", {"\"2024-02-29\""}, {"\"2023-02-29\"", "\"2024-13-01\""}},
      {R"({"type":"object","dependentRequired":{"a":["b"]},"unevaluatedProperties":false,"properties":{"a":{},"b":{}}})",
       {"{}", "{\"b\":1}", "{\"b\":1,\"a\":1}"},
       {"{\"a\":1}", "{\"c\":1}"}},
      {R"({"type":"object","dependencies":{"a":["b"]},"properties":{"a":{},"b":{}},"additionalProperties":false})",
       {"{}", "{\"b\":1}", "{\"b\":1,\"a\":1}"},
       {"{\"a\":1}"}},
  };
  for (const Case& one : cases) {
    const auto constraint = schema(one.schema);
    ASSERT_TRUE(constraint);
    for (const char* text : one.valid) EXPECT_TRUE(constraint->matches(text)) << one.schema << " must take " << text;
    for (const char* text : one.invalid) EXPECT_FALSE(constraint->matches(text)) << one.schema << " must not take " << text;
  }
}

TEST(Schema, RefusalsNameKeywordAndPath) {
  EXPECT_NE(refusal(R"({"properties":{"a":{"pattern":"\\bx"}}})").find("'pattern' at #/properties/a"), std::string::npos);
  EXPECT_NE(refusal(R"({"items":{"$ref":"http://a.b/c"}})").find("'$ref' at #/items"), std::string::npos);
  EXPECT_NE(refusal(R"({"$dynamicRef":"#x"})").find("$dynamicRef"), std::string::npos);
  EXPECT_NE(
      refusal(R"({"properties":{"a":{"type":"array","uniqueItems":true}}})").find("'uniqueItems' (first at #/properties/a)"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"$ref":"#"})").find("$ref"), std::string::npos);
  EXPECT_NE(refusal("false").find("no value"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"wrong"})").find("'type' at #"), std::string::npos);
  EXPECT_NE(refusal(R"({"allOf":[{"type":"string"},{"type":"null"}]})").find("no value"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"string","format":"idn-email"})").find("'format' at #"), std::string::npos);
  EXPECT_NE(refusal(R"({"$schema":"http://json-schema.org/draft-07/schema#","items":{"contentMediaType":"application/json"}})")
                .find("'contentMediaType' at #/items"),
            std::string::npos)
      << refusal(R"({"$schema":"http://json-schema.org/draft-07/schema#","items":{"contentMediaType":"application/json"}})");
  EXPECT_NE(refusal(R"({"$schema":"http://a.b/own"})").find("'$schema'"), std::string::npos);
  // What leads to conditions on single items is named, and `contains` only where it is.
  EXPECT_NE(refusal(R"({"type":"array","minItems":2000,"not":{"prefixItems":[{"type":"null"}]}})")
                .find("'prefixItems' (first at #/not)"),
            std::string::npos)
      << refusal(R"({"type":"array","minItems":2000,"not":{"prefixItems":[{"type":"null"}]}})");
  EXPECT_NE(refusal(R"({"contains":{"type":"null"},"minItems":2000})").find("'contains' (first at #)"), std::string::npos);
  EXPECT_NE(refusal(R"({"items":[{}],"prefixItems":[{"type":"null"}]})").find("'items' at #"), std::string::npos);
  const auto json = *Json::parse(R"({"type":"string","minLength":9000,"pattern":"^(a|é|.{1,3}z)*$"})");
  const auto hard = compile_json_schema(byte_vocabulary(), json, {}, {.regex = {.max_cpu_us = 20'000}});
  ASSERT_FALSE(hard);
  EXPECT_EQ(hard.error().message.find("'properties'"), std::string::npos) << hard.error().message;
  EXPECT_NE(hard.error().message.find("patterns and bounds"), std::string::npos) << hard.error().message;
}

TEST(Schema, HostileInputEndsInTime) {
  std::string many = R"({"enum":[)";
  for (int i = 0; i < 10'000; ++i) many += fmt::format("{}\"value {}\"", i ? "," : "", i * 7919);
  const auto constraint = schema(many + "]}");
  EXPECT_TRUE(constraint && constraint->matches("\"value 7919\"") && !constraint->matches("\"value 7918\""));
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = R"({"items":)" + deep + R"(,"not":{"const":1}})";
  EXPECT_NE(refusal(deep), "");
  std::string overlap = R"({"oneOf":[)";
  for (int i = 0; i < 30; ++i)
    overlap += fmt::format(R"({}{{"properties":{{"p{}":{{"minimum":{}}},"q":{{"maxLength":{}}}}}}})", i ? "," : "", i, i, i);
  // Its size, whatever time a slow machine takes to see it.
  const auto large =
      compile_json_schema(byte_vocabulary(), *Json::parse(overlap + "]}"), {}, {.regex = {.max_cpu_us = 100'000'000}});
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("too large"), std::string::npos) << large.error().message;
  EXPECT_NE(refusal(R"({"pattern":"^((a|b)*a(a|b){200}){5}$","minLength":4000,"maxLength":4100,"not":{"pattern":"a{30}b"}})"),
            "");
}

TEST(Schema, TheTableOfTheDocumentsIsTheCodes) {
  std::string table;
  for (const SchemaKeyword& keyword : schema_keywords()) {
    constexpr const char* kUse[] = {"enforced", "partly", "refused", "note"};
    table += fmt::format("| `{}` | {} | {} |\n", keyword.name, kUse[static_cast<int>(keyword.use)], keyword.remark);
  }
  table += fmt::format("\nFormats: {}.\n", fmt::join(schema_formats(), ", "));
  const auto text = read_file(std::string(DEEPINFER_SOURCE_DIR) + "/docs/deep-dives/grammar.md");
  ASSERT_TRUE(text);
  EXPECT_NE(text->find(table), std::string::npos) << "docs/deep-dives/grammar.md must hold:\n" << table;
}

// Random walks along the masks: every allowed token is accepted, none leads into a blind alley, the state is a function of
// the accepted tokens, and what ends is in the language.
TEST(Constraint, WalksAlongTheMaskAreValid) {
  std::mt19937 random(11);
  const auto vocabulary = byte_vocabulary();
  const TokenId end = 0;
  const std::vector<const char*> schemas{
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":5},"n":{"type":"integer","minimum":10,"maximum":99}},"required":["name","n"]})",
      R"({"anyOf":[{"type":"array","items":{"enum":["a","b"]},"maxItems":3},{"type":"object","maxProperties":2,"additionalProperties":{"type":"boolean"}}]})",
      R"({"oneOf":[{"type":"integer"},{"multipleOf":2.5,"type":"number"}]})"};
  for (const char* text : schemas) {
    const auto constraint = schema(text);
    for (int round = 0; round < 10; ++round) {
      auto mask = constraint->start({end});
      std::string answer;
      std::vector<TokenId> taken;
      std::vector<uint32_t> words(vocabulary->num_words()), again(words);
      for (int i = 0; i < 200; ++i) {
        mask->fill(words);
        std::vector<TokenId> allowed;
        for (TokenId token = 1; token < vocabulary->size(); ++token) {
          if (words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) allowed.push_back(token);
        }
        if (mask->complete() && (allowed.empty() || random() % 3 == 0)) break;
        ASSERT_FALSE(allowed.empty()) << text << ": " << answer;
        // What is short ends sooner.
        TokenId next = allowed[random() % allowed.size()];
        for (const TokenId token : allowed) {
          const std::string_view bytes = vocabulary->bytes(token);
          if (i > 60 && (bytes == "\"" || bytes == "}" || bytes == "]")) next = token;
        }
        ASSERT_TRUE(mask->accept(next)) << text << ": " << answer << " + " << vocabulary->bytes(next) << " " << next;
        taken.push_back(next);
        answer += vocabulary->bytes(next);
        if (random() % 4 == 0) {
          const auto back = static_cast<int32_t>(random() % (taken.size() + 1));
          mask->fill(words);
          mask->rollback(back);
          for (size_t k = taken.size() - static_cast<size_t>(back); k < taken.size(); ++k) ASSERT_TRUE(mask->accept(taken[k]));
          mask->fill(again);
          ASSERT_EQ(words, again);
        }
      }
      EXPECT_EQ(mask->complete(), constraint->matches(answer)) << text << ": " << answer;
    }
  }
}

// Bit by bit, on the tokens of the shipped model: a token is in the mask exactly when it is accepted.
TEST(Constraint, MasksAndAcceptAgreeOnEveryToken) {
  const auto json = read_file(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json");
  ASSERT_TRUE(json);
  const auto tokenizer = Tokenizer::parse(*json);
  ASSERT_TRUE(tokenizer);
  const auto vocabulary = Vocabulary::create(*tokenizer);
  std::mt19937 random(5);
  for (const char* text : {R"({"type":"object","properties":{"name":{"type":"string"},"n":{"type":"number","minimum":3}}})",
                           R"({"type":"array","items":{"type":"string","maxLength":6,"pattern":"^\\D"}})",
                           // Shortcuts: counted strings, open keys less some names, patterns that ask at the end only, loops.
                           R"({"type":"array","items":{"type":"string","maxLength":3}})",
                           R"({"patternProperties":{".*":{"type":"null"}},"additionalProperties":false,"type":"object"})",
                           R"({"patternProperties":{"^.+$":{"type":"null"}},"properties":{"name":{"const":1}},"type":"object"})",
                           R"({"type":"array","items":{"type":"string","pattern":"(s|é)$","not":{"pattern":"^a"}}})",
                           R"({"type":"array","items":{"type":"string","pattern":"^[a-z]+@[^x]*$"}})"}) {
    const auto compiled = compile_json_schema(vocabulary, *Json::parse(text));
    ASSERT_TRUE(compiled);
    auto mask = (*compiled)->start({});
    std::vector<uint32_t> words(vocabulary->num_words());
    std::string answer;
    for (int i = 0; i < 25; ++i) {
      mask->fill(words);
      std::vector<TokenId> allowed;
      for (TokenId token = 0; token < vocabulary->size(); ++token) {
        const bool on = words[static_cast<size_t>(token) / 32] >> (token % 32) & 1;
        const bool took = mask->accept(token);
        ASSERT_EQ(on, took) << answer << " + token " << token << " '" << vocabulary->bytes(token) << "'";
        if (!took) continue;
        mask->rollback(1);
        allowed.push_back(token);
      }
      if (allowed.empty()) break;
      const TokenId next = allowed[random() % allowed.size()];
      ASSERT_TRUE(mask->accept(next));
      answer += vocabulary->bytes(next);
    }
  }
}

// A text of words, numbers, signs and white space: what stands in it as it is, and what is left open.
std::pair<std::string, std::string> pattern_and_text(std::mt19937& random) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> open{{"[a-z]{1,9}", {"a", "story", "zq"}},
                                                                           {"[0-9]+", {"7", "2024", "31"}},
                                                                           {"( |\n)*", {"", " ", "\n  \n", "   "}},
                                                                           {"(yes|no)", {"yes", "no"}}};
  const std::vector<const char*> sure{"The answer", " is", "\n\n  ", "12345", ", ",  "é",     "日本語",
                                      "{\"name\":", "<b>", "don't",  "   ",   "_x1", " => [", "\n"};
  std::string pattern, text;
  for (int i = 0; i < 12; ++i) {
    if (random() % 3 == 0) {
      const auto& [part, texts] = open[random() % open.size()];
      pattern += part;
      text += texts[random() % texts.size()];
    } else {
      const std::string_view part = sure[random() % sure.size()];
      for (const char c : part)
        pattern += std::string(std::string_view("()[]{}.*+?^$|\\").find(c) != std::string_view::npos ? "\\" : "") + c;
      text += part;
    }
  }
  return {pattern, text};
}

// Text that is sure to come is written as the tokenizer writes it, whatever follows, and only so.
TEST(Constraint, SureTextHasTheTokensOfTheTokenizer) {
  const auto json = read_file(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json");
  const auto tokenizer = Tokenizer::parse(*json);
  ASSERT_TRUE(tokenizer);
  const auto vocabulary = Vocabulary::create(*tokenizer);
  std::mt19937 random(17);
  std::vector<uint32_t> words(vocabulary->num_words());
  int sure = 0;
  for (int round = 0; round < 300; ++round) {
    const auto [pattern, text] = pattern_and_text(random);
    const auto constraint = compile_regex(vocabulary, pattern);
    ASSERT_TRUE(constraint) << pattern;
    auto mask = (*constraint)->start({0}), silent = (*constraint)->start({0});
    for (const TokenId token : tokenizer->encode_content(text)) {
      const TokenId only = mask->forced();
      silent->fill(words);
      ASSERT_TRUE(words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) << pattern << "\n" << text;
      if (only >= 0) {
        ++sure;
        ASSERT_EQ(only, token) << pattern << "\n" << text;
        ASSERT_EQ(std::transform_reduce(words.begin(), words.end(), 0, std::plus(), [](uint32_t w) { return std::popcount(w); }),
                  1);
      }
      ASSERT_TRUE(mask->accept(token) && silent->accept(token)) << pattern << "\n" << text;
      mask->rollback(1);
      ASSERT_EQ(mask->forced(), only);
      ASSERT_TRUE(mask->accept(token));
    }
    EXPECT_TRUE(mask->complete()) << pattern << "\n" << text;
  }
  EXPECT_GT(sure, 2000);
}

// What an answer has worked out changes nothing for the next one.
TEST(Constraint, LaterMasksSayWhatTheFirstOneSaid) {
  const auto constraint = schema(
      R"({"type":"object","properties":{"ab":{"type":"integer"},"abc":{"type":"string","pattern":"^x+$"}},"required":["abc"]})");
  const auto vocabulary = byte_vocabulary();
  const auto masks = [&](std::string_view text) {
    std::vector<uint32_t> out;
    const auto mask = constraint->start({5});
    for (const char c : text) {
      std::vector<uint32_t> words(vocabulary->num_words());
      mask->fill(words);
      out.insert(out.end(), words.begin(), words.end());
      EXPECT_TRUE(mask->accept(static_cast<uint8_t>(c)));
    }
    return out;
  };
  const std::string text = R"({"other": [1, {"k": null}], "abc": "xx", "ab": -4})", other = R"({"abc":"x","z":true})";
  const auto first = masks(text);
  const auto second = masks(other);
  EXPECT_EQ(masks(text), first);
  EXPECT_EQ(masks(other), second);
}

// A long answer under counted repetitions, which made states until there was no room for more and the answer failed.
TEST(Constraint, AnAnswerOfAnyLengthHasRoom) {
  const auto constraint = schema(R"({"type":"string","minLength":9000})");
  const auto vocabulary = byte_vocabulary();
  std::vector<uint32_t> words(vocabulary->num_words()), again(words);
  auto mask = constraint->start({0});
  ASSERT_TRUE(mask->accept('"'));
  int chars = 0;
  for (const std::string_view unit = "aé"; chars < 9000;) {
    for (const char c : unit) {
      ASSERT_EQ(mask->fill(words), MaskFill::kReady) << chars;
      ASSERT_TRUE(mask->accept(static_cast<uint8_t>(c))) << chars;
      ASSERT_FALSE(mask->complete());
      if (chars % 50 != 0) continue;
      mask->rollback(1);
      ASSERT_EQ(mask->fill(again), MaskFill::kReady);
      EXPECT_EQ(words, again) << chars;
      ASSERT_TRUE(mask->accept(static_cast<uint8_t>(c)));
    }
    chars += 2;
    ASSERT_TRUE(chars >= 9000 || !mask->accept('"')) << chars;
  }
  ASSERT_TRUE(mask->accept('"'));
  EXPECT_TRUE(mask->complete());
}

// A search whether anything is left that finds no answer blocks what it asked about, and nothing else.
TEST(Constraint, AnUnansweredSearchEndsNoAnswer) {
  const auto constraint = schema(
      R"({"type":"string","pattern":"^(?=.{1,253}$)(?!(?:.*\\.)?[a-z0-9]{2}--)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$"})");
  auto mask = constraint->start({0});
  std::vector<uint32_t> words(byte_vocabulary()->num_words());
  for (const char c : std::string_view("\"h0stn4me-9.example\"")) {
    ASSERT_EQ(mask->fill(words), MaskFill::kReady) << c;
    ASSERT_TRUE(words[static_cast<size_t>(c) / 32] >> (c % 32) & 1) << c;
    ASSERT_TRUE(mask->accept(c));
  }
  EXPECT_TRUE(mask->complete());
}

// A set that is left off and taken up again is the set that is worked out at once.
TEST(Constraint, ASetMayBeWorkedOutPieceByPiece) {
  constexpr const char* kSlow = R"({"type":"object","patternProperties":{"^[a-m]*x.{7}$":{"type":"string","pattern":"q.{9}$"}}})";
  const auto constraint = schema(kSlow), other = schema(kSlow);
  const auto vocabulary = byte_vocabulary();
  std::vector<uint32_t> words(vocabulary->num_words()), whole(words);
  auto pieces = constraint->start({0}), at_once = other->start({0});
  MaskDeadline passed;
  passed.set(0);
  for (const char c : std::string_view(R"({"axbcdefgh": "qabcdefghi"})")) {
    MaskFill state = MaskFill::kUnfinished;
    for (int i = 0; i < 1000 && state == MaskFill::kUnfinished; ++i) state = pieces->fill(words, passed);
    ASSERT_EQ(state, MaskFill::kReady);
    at_once->fill(whole);
    EXPECT_EQ(words, whole) << c;
    ASSERT_TRUE(pieces->accept(static_cast<uint8_t>(c)) && at_once->accept(static_cast<uint8_t>(c))) << c;
  }
  EXPECT_TRUE(pieces->complete());
}

// What one answer has worked out, another one that runs beside it need not: its sets are ready in the first slice.
TEST(Constraint, RunningAnswersShareWhatOneWorkedOut) {
  const auto constraint =
      schema(R"({"type":"object","patternProperties":{"^[a-m]*x.{7}$":{"type":"string","pattern":"q.{9}$"}}})");
  std::vector<uint32_t> words(byte_vocabulary()->num_words());
  auto first = constraint->start({0}), second = constraint->start({0});
  MaskDeadline passed;
  passed.set(0);
  for (const char c : std::string_view(R"({"axbcdefgh": "qabcdefghi"})")) {
    ASSERT_EQ(first->fill(words), MaskFill::kReady);
    EXPECT_EQ(second->fill(words, passed), MaskFill::kReady) << c;
    ASSERT_TRUE(first->accept(static_cast<uint8_t>(c)) && second->accept(static_cast<uint8_t>(c)));
  }
}

TEST(Constraint, MasksOfOneConstraintMayRunOnManyThreads) {
  const auto constraint =
      schema(R"({"type":"object","properties":{"ab":{"type":"string","pattern":"(a|b)*c$"},"n":{"type":"array"}}})");
  std::vector<std::vector<uint32_t>> sets(4);
  std::vector<std::thread> threads;
  for (auto& out : sets) {
    threads.emplace_back([&out, constraint] {
      for (int round = 0; round < 5; ++round) {
        const auto mask = constraint->start({0});
        std::vector<uint32_t> words(byte_vocabulary()->num_words());
        for (const char c : std::string_view(R"({"n": [1, {"k": "abc"}], "ab": "xabc"})")) {
          while (mask->fill(words) == MaskFill::kUnfinished) std::this_thread::yield();
          if (round == 0) out.insert(out.end(), words.begin(), words.end());
          EXPECT_TRUE(mask->accept(static_cast<uint8_t>(c)));
        }
        EXPECT_TRUE(mask->complete());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& out : sets) EXPECT_EQ(out, sets[0]);
}

// Each definition may hold every other: their choices are one value, not one for each place.
TEST(Schema, EqualChoicesOfRecursiveDefinitionsAreOneValue) {
  std::string all, defs;
  constexpr int kDefs = 150;
  for (int i = 0; i < kDefs; ++i) all += fmt::format(R"({}{{"$ref":"#/$defs/d{}"}})", i ? "," : "", i);
  for (int i = 0; i < kDefs; ++i)
    defs +=
        fmt::format(R"({}"d{}":{{"properties":{{"p{}":{{"type":"integer"}},"kid":{{"anyOf":[{}]}}}}}})", i ? "," : "", i, i, all);
  const auto json = *Json::parse(R"({"$ref":"#/$defs/d0","type":"object","$defs":{)" + defs + "}}");
  const auto constraint = compile_json_schema(byte_vocabulary(), json, {}, {.regex = {.max_nodes = 60'000}});
  ASSERT_TRUE(constraint) << constraint.error().message;
  EXPECT_TRUE((*constraint)->matches(R"({"kid": {"p1": "x", "kid": {"p2": 7}}})"));
  EXPECT_FALSE((*constraint)->matches(R"({"p0": "x"})"));
}

TEST(Constraint, GoesOnBehindWhatIsWritten) {
  const auto whole =
      schema(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})");
  const auto rest = whole->after("{\"a\": 1");
  ASSERT_NE(rest, nullptr);
  EXPECT_TRUE(rest->matches("2}"));
  EXPECT_TRUE(rest->matches("}"));
  EXPECT_FALSE(rest->matches("{\"a\": 12}"));
  EXPECT_TRUE(whole->matches("{\"a\": 12}")) << "the whole stays as it is";
  EXPECT_NE(rest->after("}"), nullptr);
  EXPECT_EQ(rest->after("}}"), nullptr);
  EXPECT_EQ(whole->after("{\"b\""), nullptr);
  const auto mask = rest->start({300});
  std::vector<uint32_t> words(2048 / 32);
  mask->fill(words);
  EXPECT_TRUE(words['2' / 32] >> ('2' % 32) & 1);
  EXPECT_FALSE(words['"' / 32] >> ('"' % 32) & 1);
}

TEST(Constraint, CompilingEndsWhenItsTimeIsOver) {
  std::string branches;
  for (int i = 0; i < 400; ++i)
    branches += fmt::format(R"({}{{"type":"string","pattern":"a.{{{}}}b.*{}"}})", i ? "," : "", i % 90, i);
  const auto json = *Json::parse(R"({"oneOf":[)" + branches + "]}");
  const auto refused = compile_json_schema(byte_vocabulary(), json, {}, {.regex = {.max_cpu_us = 20'000}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("JSON Schema"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace deepinfer
