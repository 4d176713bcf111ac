#include "model/script.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::string error_of(std::string_view text) {
  const auto script = parse_script(text, "s.jsonl");
  return script ? "" : script.error().message;
}

TEST(Script, ReadsHeaderAndReplies) {
  const auto script =
      parse_script(R"({"scripted": 1, "vocab": 300, "eos": 2, "delay_ms": 3, "faults": [{"step": 4, "kind": "error"}]}

{"match": [7, 8], "ids": [5, 6], "faults": [{"token": 1, "kind": "nan"}, {"token": 0, "kind": "stall", "ms": 9}]}
{"text": "Hi", "delay_ms": 2}
{"hex": "ff0a"}
{"hash": {"tokens": 10, "seed": 3}}
)",
                   "s.jsonl");
  ASSERT_TRUE(script) << script.error().message;
  EXPECT_EQ(script->name, "scripted:s.jsonl");
  EXPECT_EQ(script->vocab, 300);
  EXPECT_EQ(script->eos, 2);
  EXPECT_EQ(script->faults.at(0).at, 4);
  ASSERT_EQ(script->replies.size(), 4u);
  EXPECT_EQ(script->replies[0].match, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(script->replies[0].ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(script->replies[0].faults.at(1).ms, 9);
  EXPECT_EQ(script->replies[1].ids, (std::vector<TokenId>{'H', 'i'}));
  EXPECT_EQ(script->replies[2].ids, (std::vector<TokenId>{255, 10}));
  EXPECT_EQ(script->replies[3].size(), 10);
}

TEST(Script, UsesTheTokenizerOfTheHost) {
  const ScriptTokens tokens{
      .vocab = 1000,
      .eos = 9,
      .tokenize = [](std::string_view text) { return std::vector<TokenId>{static_cast<TokenId>(text.size())}; },
      .byte_token = [](uint8_t byte) { return 500 + byte; }};
  const auto script =
      parse_script("{\"scripted\": 1}\n{\"match\": \"four\", \"text\": \"abc\"}\n{\"bytes\": \"a\"}", "s", tokens);
  ASSERT_TRUE(script) << script.error().message;
  EXPECT_EQ(script->eos, 9);
  EXPECT_EQ(script->replies[0].match, std::vector<TokenId>{4});
  EXPECT_EQ(script->replies[0].ids, std::vector<TokenId>{3});
  EXPECT_EQ(script->replies[1].ids, std::vector<TokenId>{500 + 'a'});
}

TEST(Script, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of(""), "s.jsonl: empty script, the first line must be the header, for example {\"scripted\": 1}");
  EXPECT_EQ(error_of("{\"text\": \"x\"}"), "s.jsonl:1: the first line must be the header, for example {\"scripted\": 1}");
  EXPECT_EQ(error_of("{\"scripted\": 2}"), "s.jsonl:1: only version 1 is known");
  EXPECT_EQ(error_of("{\"scripted\": 1, \"colour\": 2}"),
            "s.jsonl:1: unknown setting \"colour\": vocab, eos, context, window, page_tokens, delay_ms or faults");
  EXPECT_EQ(error_of("{\"scripted\": 1}\n\n{\"ids\": [1], \"text\": \"x\"}"),
            "s.jsonl:3: a reply needs exactly one of ids, text, bytes, hex or hash");
  EXPECT_EQ(error_of("{\"scripted\": 1}\n{\"ids\": [512]}"), "s.jsonl:2: ids must be 0 to 511, got 512");
  EXPECT_EQ(error_of("{\"scripted\": 1}\n{\"hex\": \"f\"}"), "s.jsonl:2: hex needs two digits per byte");
  EXPECT_EQ(error_of("{\"scripted\": 1}\n{\"ids\": [1], \"faults\": [{\"token\": 0, \"kind\": \"error\"}]}"),
            "s.jsonl:2: faults.kind must be \"nan\" or \"stall\"");
  EXPECT_EQ(error_of("{\"scripted\": 1, \"vocab\": 64}\n{\"bytes\": \"a\"}"),
            "s.jsonl:2: bytes gives token 97, not below the vocabulary size 64: set vocab in the header");
  EXPECT_NE(error_of("{\"scripted\": 1}\n{oops").find("s.jsonl:2: "), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
