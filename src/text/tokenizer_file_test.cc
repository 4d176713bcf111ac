#include "text/tokenizer_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "text/test_data.h"
#include "text/token_map.h"

namespace deepinfer {
namespace {

Json small() { return test::tokenizer_json({{"a", "b"}, {"ab", "c"}}, {{"<x>", true}, {"</x>", false}}); }

std::string error_of(const std::string& json) {
  const auto tokenizer = Tokenizer::parse(json, "t.json");
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

std::string error_after(const std::function<void(Json&)>& change) {
  Json json = small();
  change(json);
  return error_of(json.dump());
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
  EXPECT_EQ(text.find("t.json: "), 0u) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

Json& model(Json& json) { return *json.find("model"); }

TEST(TokenizerFile, TakesTheSmallOne) { EXPECT_EQ(error_of(small().dump()), ""); }
TEST(TokenizerFile, TakesPrettyPrintedText) { EXPECT_EQ(error_of(small().dump(2)), ""); }

TEST(TokenizerFile, TakesMergesBeforeTheVocabulary) {
  Json json = small();
  Json turned = Json::object({{"merges", model(json).at("merges")}, {"vocab", model(json).at("vocab")}});
  json.set("model", turned);
  EXPECT_EQ(error_of(json.dump()), "");
}

TEST(TokenizerFile, TakesMergesAsLines) {
  EXPECT_EQ(error_after([](Json& json) { model(json).set("merges", Json::array({"a b", "ab c"})); }), "");
}

TEST(TokenizerFile, NamesWhatIsMissing) {
  expect_contains(error_of("{}"), "model.vocab is missing");
  expect_contains(error_of(""), "line 1 column 1: unexpected end");
  expect_contains(error_of("[]"), "line 1 column 1: expected '{'");
  expect_contains(error_of(small().dump() + "x"), "unexpected text after the value");
  expect_contains(error_after([](Json& json) {
                    model(json) = Json::object({{"vocab", model(json).at("vocab")}});
                  }),
                  "model.merges is missing");
  expect_contains(error_after([](Json& json) {
                    json = Json::object({{"model", json.at("model")}});
                  }),
                  "pre_tokenizer is missing");
}

TEST(TokenizerFile, NamesBadTokens) {
  const auto with = [](std::string token, Json id) {
    return error_after([&](Json& json) { model(json).find("vocab")->members().emplace_back(token, id); });
  };
  expect_contains(with("zz", "zz"), "expected an integer");
  expect_contains(with("zz", 1.5), "expected an integer");
  expect_contains(with("zz", -1), "out of range");
  expect_contains(with("zz", Json::number("99999999999999999999")), "integer too large");
  expect_contains(with("zz", 5), "token \"zz\" has the id 5 of another token");
  expect_contains(with("", 300), "is empty");
  expect_contains(with("zz", 300), "no token has the id 260");
  expect_contains(error_after([](Json& json) { model(json).find("vocab")->members()[65].first = "zzz"; }),
                  "no token for byte 0x41");
  expect_contains(error_after([](Json& json) { model(json).set("vocab", Json::array()); }), "expected '{'");
}

TEST(TokenizerFile, NamesBadMerges) {
  const auto with = [](Json merge) { return error_after([&](Json& json) { model(json).find("merges")->push_back(merge); }); };
  expect_contains(with("ab"), "a merge must be two tokens");
  expect_contains(with(Json::array({"a"})), "two parts");
  expect_contains(with(Json::array({"a", "b", "c"})), "two parts");
  expect_contains(with(7), "expected '\"'");
  expect_contains(with("a zz"), "merges[2] needs the token \"zz\"");
  expect_contains(with("b a"), "merges[2] needs the token \"ba\"");
  expect_contains(with("a ｜"), "outside the byte alphabet");
  expect_contains(with("a b"), "merge 2 joins the same two tokens");
}

TEST(TokenizerFile, NamesBadAddedTokens) {
  const auto with = [](Json token) { return error_after([&](Json& json) { json.find("added_tokens")->push_back(token); }); };
  const auto token = [](Json id, Json content) { return Json::object({{"id", id}, {"content", content}}); };
  expect_contains(with(token(260, 7)), "added_tokens[2].content must be a string");
  expect_contains(with(token("x", "y")), "added_tokens[2].id must be an integer");
  expect_contains(with(token(258, "<y>")), "has the id 258 of another token");
  expect_contains(with(token(270, "<y>")), "no token has the id 260");
  expect_contains(with(token(260, "ab")), "is in the vocabulary under another id");
  expect_contains(with(token(260, "<x>")), "appears twice");
  expect_contains(with(token(260, "")), "is empty");
  Json strip = token(260, "<y>");
  strip.set("lstrip", true);
  expect_contains(with(strip), "lstrip is true, only false is supported");
  expect_contains(error_after([](Json& json) { json.set("added_tokens", 3); }), "added_tokens must be an array");
}

TEST(TokenizerFile, RefusesOtherKinds) {
  const auto with = [](const std::string& key, Json value) { return error_after([&](Json& json) { json.set(key, value); }); };
  const auto option = [](const std::string& key, Json value) {
    return error_after([&](Json& json) { model(json).set(key, value); });
  };
  expect_contains(with("normalizer", Json::object({{"type", "NFC"}})), "normalizer is of type NFC");
  expect_contains(with("decoder", Json::object({{"type", "Metaspace"}})), "decoder is of type Metaspace");
  expect_contains(with("post_processor", Json::object({{"type", "TemplateProcessing"}})), "post_processor is of type");
  expect_contains(with("truncation", Json::object()), "truncation must be null");
  expect_contains(option("type", "Unigram"), "only \"BPE\" is supported");
  expect_contains(option("byte_fallback", true), "byte_fallback is true");
  expect_contains(option("dropout", 0.1), "dropout is 0.1");
  expect_contains(option("end_of_word_suffix", "</w>"), "end_of_word_suffix");
  expect_contains(error_after([](Json& json) {
                    Json& steps = *json.find("pre_tokenizer")->find("pretokenizers");
                    steps.items()[0].find("pattern")->set("Regex", "\\p{N}{1,2}");
                  }),
                  "unsupported pre-tokenizer: pre_tokenizer.pretokenizers[0] has the pattern");
  expect_contains(error_after([](Json& json) { json.find("pre_tokenizer")->find("pretokenizers")->items().pop_back(); }),
                  "unsupported pre-tokenizer");
}

// Damaged files give an error or a tokenizer that works; never a crash.
TEST(TokenizerFile, SurvivesDamage) {
  std::mt19937_64 random(1);
  const std::string good = small().dump();
  int accepted = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = good;
    for (size_t n = random() % 3 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 8 + 1); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 12)); break;
        case 3: text.resize(at + 1); break;
        default: text[at] = "{}[]\",:0129-nt"[random() % 14]; break;
      }
    }
    const auto tokenizer = Tokenizer::parse(text);
    if (!tokenizer.ok()) continue;
    ++accepted;
    const std::string sample = "abcabc <x>aabb 12 中\xFF";
    ASSERT_EQ(tokenizer->decode_bytes(tokenizer->encode_content(sample)), sample);
    ASSERT_TRUE(make_token_map(*tokenizer, tokenizer->vocab_size()).ok());
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace deepinfer
