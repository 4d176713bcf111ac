#include "text/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace deepinfer {
namespace {

ByteTrie::Match naive_longest(const std::map<std::string, int32_t>& words, const std::string& text) {
  ByteTrie::Match match;
  for (const auto& [word, value] : words) {
    if (!text.starts_with(word)) continue;
    if (value > 0 && word.size() > match.length) match.value = value, match.length = word.size();
    if (word == text) match.whole = value;
  }
  return match;
}

TEST(ByteTrie, EqualsSearchingOneByOne) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const int letters = round % 3 == 0 ? 256 : 3;
    const auto word = [&](size_t most) {
      std::string out;
      for (size_t i = random() % most + 1; i > 0; --i) out += static_cast<char>(random() % static_cast<uint64_t>(letters));
      return out;
    };
    std::map<std::string, int32_t> words;
    for (int i = 0; i < 400; ++i) {
      const std::string key = word(8);
      const auto value = static_cast<int32_t>(words.size() + 1);
      words.emplace(key, random() % 5 == 0 ? -value : value);
    }
    HugeVector<ByteTrie::Entry> entries;
    for (const auto& [text, value] : words) entries.push_back({text, value});
    std::shuffle(entries.begin(), entries.end(), random);
    const auto trie = ByteTrie::build(entries);
    ASSERT_TRUE(trie.ok());
    for (int i = 0; i < 2000; ++i) {
      const std::string text = word(12);
      const auto got = trie->longest(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      const auto wanted = naive_longest(words, text);
      ASSERT_EQ(got.value, wanted.value);
      ASSERT_EQ(got.length, wanted.length);
      ASSERT_EQ(got.whole, wanted.whole);
    }
  }
}

TEST(ByteTrie, EmptyFindsNothing) {
  HugeVector<ByteTrie::Entry> none;
  const auto trie = ByteTrie::build(none);
  ASSERT_TRUE(trie.ok());
  const uint8_t text[] = {0, 1, 255};
  EXPECT_EQ(trie->longest(text, 3).value, 0);
}

TEST(ByteTrie, TakesVeryLongEntries) {
  const std::string text(100000, 'x');
  HugeVector<ByteTrie::Entry> entries = {{text, 1}, {std::string_view(text).substr(0, 70000), 2}};
  const auto trie = ByteTrie::build(entries);
  ASSERT_TRUE(trie.ok());
  EXPECT_EQ(trie->longest(reinterpret_cast<const uint8_t*>(text.data()), 99999).value, 2);
}

}  // namespace
}  // namespace deepinfer
