#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <thread>

#include "text/detokenizer.h"
#include "text/test_data.h"

namespace deepinfer {
namespace {

using Ids = std::vector<TokenId>;

// The textbook: again and again the leftmost pair of lowest rank, over the pieces of the pre-tokenizer.
class NaiveBpe {
 public:
  explicit NaiveBpe(const Json& json) {
    const Json& model = json.at("model");
    for (const auto& [text, id] : model.at("vocab").members()) ids_[text] = static_cast<TokenId>(*id.to_int64("id"));
    for (const Json& merge : model.at("merges").items()) {
      const std::string line = merge.is_string() ? merge.as_string() : merge[0].as_string() + " " + merge[1].as_string();
      ranks_.emplace(line, ranks_.size());
    }
  }

  Ids encode(const std::string& text) const {
    Ids out;
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    while (at < end) {
      const uint8_t* next = pretokenizer_.next_piece(at, end);
      for (const std::string& symbol : merge(at, next)) out.push_back(ids_.at(symbol));
      at = next;
    }
    return out;
  }

 private:
  std::vector<std::string> merge(const uint8_t* at, const uint8_t* end) const {
    std::vector<std::string> symbols;
    for (; at < end; ++at) symbols.push_back(spell_bytes(std::string(1, static_cast<char>(*at))));
    while (true) {
      size_t best = 0, best_rank = ranks_.size();
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto rank = ranks_.find(symbols[i] + " " + symbols[i + 1]);
        if (rank != ranks_.end() && rank->second < best_rank) best = i, best_rank = rank->second;
      }
      if (best_rank == ranks_.size()) return symbols;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }

  Pretokenizer pretokenizer_;
  std::map<std::string, TokenId> ids_;
  std::map<std::string, size_t> ranks_;
};

Tokenizer parse(const std::string& json) {
  auto tokenizer = Tokenizer::parse(json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return *std::move(tokenizer);
}

void expect_like_naive(const std::string& json, int texts) {
  const Tokenizer tokenizer = parse(json);
  const NaiveBpe naive(*Json::parse(json));
  std::mt19937_64 random(11);
  for (int i = 0; i < texts; ++i) {
    const std::string text = test::random_text(random, random() % 80 + 1, i % 3 != 0);
    const Ids wanted = naive.encode(text);
    ASSERT_EQ(tokenizer.encode_content(text), wanted) << text;
    ASSERT_EQ(tokenizer.encode_content_by_rank(text), wanted) << text;
    ASSERT_EQ(tokenizer.decode_bytes(wanted), text);
  }
}

TEST(Tokenizer, EqualsTheTextbookOnTinyV41) {
  const auto json = test::shared_file(test::kTinyV41);
  if (!json) GTEST_SKIP() << "left out: models/tiny-v41 is not here";
  expect_like_naive(*json, 1500);
}

TEST(Tokenizer, EqualsTheTextbookOnTinyA) {
  const auto json = test::shared_file(test::kTinyA);
  if (!json) GTEST_SKIP() << "left out: ../shared/golden/model is not here";
  expect_like_naive(*json, 3000);
}

// Random merges over three letters, where borders, ties and dead ends abound. With `wild`, a token may come from two
// merges or need one that comes later, which only the priority queue can do.
TEST(Tokenizer, EqualsTheTextbookOnRandomVocabularies) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    const bool wild = round % 3 == 0;
    std::vector<std::string> tokens = {"a", "b", "c"};
    test::Merges merges;
    for (int i = 0; i < 25; ++i) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 12) continue;
      const bool known = std::find(tokens.begin(), tokens.end(), left + right) != tokens.end();
      if (known && (!wild || std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end())) continue;
      merges.emplace_back(left, right);
      if (!known) tokens.push_back(left + right);
    }
    if (wild) std::shuffle(merges.begin(), merges.end(), random);
    const Json json = test::tokenizer_json(merges);
    const Tokenizer tokenizer = parse(json.dump());
    const NaiveBpe naive(json);
    for (int i = 0; i < 120; ++i) {
      std::string text;
      for (size_t n = random() % 60 + 1; n > 0; --n) text += static_cast<char>('a' + random() % (i % 2 ? 3 : 2));
      ASSERT_EQ(tokenizer.encode_content(text), naive.encode(text)) << text << "\n" << json.dump();
    }
  }
}

TEST(Tokenizer, WholePieceWinsWithIgnoreMerges) {
  Json json = test::tokenizer_json({{"b", "c"}, {"a", "b"}, {"ab", "c"}});  // "abc" merges to a, bc
  const std::string plain = json.dump();
  EXPECT_EQ(parse(plain).encode_content("abc"), (Ids{'a', 256}));
  json.find("model")->set("ignore_merges", true);
  const Tokenizer tokenizer = parse(json.dump());
  EXPECT_EQ(tokenizer.encode_content("abc"), (Ids{258}));
  EXPECT_EQ(tokenizer.encode_content("abca"), (Ids{'a', 256, 'a'}));
}

TEST(Tokenizer, AddedTokensLeftmostLongest) {
  const Tokenizer tokenizer =
      parse(test::tokenizer_json({}, {{"<x>", true}, {"<x>y", true}, {"｜中", false}, {"x>y", false}}).dump());
  EXPECT_EQ(tokenizer.encode("a<x>y<x>"), (Ids{'a', 257, 256}));
  EXPECT_EQ(tokenizer.encode_content("<x>"), (Ids{'<', 'x', '>'}));
  EXPECT_EQ(tokenizer.encode("x>y"), (Ids{259}));
  EXPECT_EQ(tokenizer.added_token("<x>y"), 257);
  EXPECT_EQ(tokenizer.added_token("<x"), std::nullopt);
  EXPECT_EQ(tokenizer.token_id("a"), TokenId{'a'});
  EXPECT_EQ(tokenizer.token_id(""), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_TRUE(tokenizer.is_added(258) && !tokenizer.is_special(258) && !tokenizer.is_added('a'));
  EXPECT_EQ(tokenizer.decode(Ids{'a', 256, 'b'}), "a<x>b");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 256, 'b', 258}, true), tokenizer.decode(Ids{'a', 'b', 258}));
  EXPECT_EQ(tokenizer.decode(Ids{-1, 'a', 100000}), "a");
  EXPECT_EQ(tokenizer.token_spelling(' '), "Ġ");
  EXPECT_EQ(tokenizer.token_spelling(256), "<x>");
  EXPECT_EQ(tokenizer.vocab_size(), 260);
}

TEST(Tokenizer, EmptyTextHasNoIds) {
  const Tokenizer tokenizer = parse(test::tokenizer_json({}).dump());
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
  Ids ids = {7};
  tokenizer.append_content("ab", ids);
  EXPECT_EQ(ids, (Ids{7, 'a', 'b'}));
}

TEST(Tokenizer, AnyBytesComeBack) {
  const auto json = test::shared_file(test::kTinyV41);
  if (!json) GTEST_SKIP() << "left out: models/tiny-v41 is not here";
  const Tokenizer tokenizer = parse(*json);
  rc::check("decode(encode(x)) == x", [&](const std::vector<uint8_t>& bytes) {
    const std::string text(bytes.begin(), bytes.end());
    RC_ASSERT(tokenizer.decode_bytes(tokenizer.encode(text)) == text);
    RC_ASSERT(tokenizer.decode_bytes(tokenizer.encode_content(text)) == text);
  });
}

TEST(Detokenizer, StreamsWhatDecodeGives) {
  const auto json = test::shared_file(test::kTinyV41);
  if (!json) GTEST_SKIP() << "left out: models/tiny-v41 is not here";
  const Tokenizer tokenizer = parse(*json);
  rc::check("joined pushes are the whole text", [&](const std::vector<uint16_t>& picks, bool low, bool skip) {
    Ids ids;
    // Mostly lone bytes, so that characters break everywhere.
    for (const uint16_t pick : picks) ids.push_back(pick % (low ? 300 : tokenizer.vocab_size() + 3));
    Detokenizer out(tokenizer, skip);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string part = out.push(id);
      RC_ASSERT(is_valid_utf8(part));
      RC_ASSERT(out.waiting() < 4u);
      joined += part;
    }
    RC_ASSERT(joined + out.finish() == tokenizer.decode(ids, skip));
    RC_ASSERT(out.finish().empty());
  });
}

TEST(Detokenizer, EverySplitPointOfCharacters) {
  const Tokenizer tokenizer = parse(test::tokenizer_json({{"\xF0", "\x9F"}, {"\xF0\x9F", "\x98"}, {"\xE4", "\xB8"}}).dump());
  const std::string text =
      "a😀中é\xF0\x9F"
      "b\xE4";
  const Ids ids = tokenizer.encode_content(text);
  for (size_t split = 0; split <= ids.size(); ++split) {
    Detokenizer out(tokenizer);
    std::string joined;
    for (size_t i = 0; i < split; ++i) joined += out.push(ids[i]);
    EXPECT_EQ(joined + out.finish(), tokenizer.decode(std::span(ids).first(split)));
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  const auto json = test::shared_file(test::kTinyA);
  if (!json) GTEST_SKIP() << "left out: ../shared/golden/model is not here";
  const Tokenizer tokenizer = parse(*json);
  std::mt19937_64 random(2);
  const std::string text = test::random_text(random, 20000, true);
  const Ids wanted = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { same += tokenizer.encode(text) == wanted; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, 4);
}

}  // namespace
}  // namespace deepinfer
