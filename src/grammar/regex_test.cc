#include "grammar/regex.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <regex>

#include "grammar/constraint.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

bool whole(std::string_view pattern, std::string_view text) {
  RegexArena arena;
  const auto rx = parse_regex(arena, pattern, RegexUse::kWhole);
  EXPECT_TRUE(rx) << pattern << (rx ? "" : rx.error().message);
  return rx && arena.matches(*rx, text);
}
bool found(std::string_view pattern, std::string_view text) {
  RegexArena arena;
  const auto rx = parse_regex(arena, pattern, RegexUse::kSearch);
  EXPECT_TRUE(rx) << pattern;
  return rx && arena.matches(*rx, text);
}

TEST(Regex, AnchorsLookAheadAndCounts) {
  EXPECT_TRUE(whole("a{2,3}b?", "aab"));
  EXPECT_FALSE(whole("a{2,3}b?", "ab"));
  EXPECT_TRUE(found("b", "abc"));
  EXPECT_FALSE(found("^b", "abc"));
  EXPECT_TRUE(found("(^a|c$)", "xxc"));
  EXPECT_TRUE(found("^a|b", "cb"));
  EXPECT_FALSE(found("^(?!ab)", "abc"));
  EXPECT_FALSE(found("(?!(^[a-c0-5]$|\\s))([^a]|^.$)$", "0"));  // at 0 the look-ahead holds, behind it nothing is left
  EXPECT_TRUE(found("(?!^a)b", "ab"));
  EXPECT_TRUE(found("^(?=.{3}$)[a-z]+$", "abc"));
  EXPECT_FALSE(found("^(?=.{3}$)[a-z]+$", "abcd"));
  EXPECT_TRUE(found("^\\S+$", "\xC3\xA9"));
  EXPECT_FALSE(found("^\\S+$", "\xC2\xA0"));
  EXPECT_TRUE(whole("[^a-c]", "\xF0\x9F\x98\x80"));
}

TEST(Regex, RefusesWhatItCannotEnforce) {
  RegexArena arena;
  for (const char* pattern : {"(a)\\1", "(?<=a)b", "\\bword", "\\p{L}", "(a", "a)", "*", "[z-a]", "a{2"}) {
    EXPECT_FALSE(parse_regex(arena, pattern, RegexUse::kSearch)) << pattern;
  }
}

TEST(Regex, IntersectionAndComplementKnowWhenNothingIsLeft) {
  RegexArena arena;
  const Rx word = *parse_regex(arena, "[a-z]{3}", RegexUse::kWhole);
  const Rx digits = *parse_regex(arena, "[0-9]+", RegexUse::kWhole);
  EXPECT_FALSE(arena.alive(arena.intersect({word, digits})));
  EXPECT_TRUE(arena.alive(arena.intersect({word, arena.complement(digits)})));
  EXPECT_FALSE(arena.alive(arena.intersect({word, arena.complement(word)})));
  const Rx sevens = arena.multiple_of(7, 0);
  EXPECT_TRUE(arena.matches(sevens, "98"));
  EXPECT_FALSE(arena.matches(sevens, "99"));
  EXPECT_TRUE(arena.matches(sevens, "7.00"));
  const Rx cents = arena.multiple_of(25, 2);
  EXPECT_TRUE(arena.matches(cents, "10.75"));
  EXPECT_TRUE(arena.matches(cents, "10.5"));
  EXPECT_FALSE(arena.matches(cents, "10.7"));
  EXPECT_TRUE(arena.matches(cents, "10.250"));
}

TEST(Regex, CountsOfCountsTakeFewSteps) {
  for (const char* pattern :
       {"((a{1,1000}){1,1000}){1,1000}", "(((a{2,1000}b?){3,1000}c?){1,1000}){2,1000}", "((a{5,10}){3,1000}){7,1000}",
        "((a|ab){1,500}|(ba?){1,500}){1,500}", "((.{1,300}x?){1,300}y?){1,300}"}) {
    RegexArena arena;
    Rx rx = *parse_regex(arena, pattern, RegexUse::kWhole);
    for (int i = 0; i < 500; ++i) rx = arena.derive(rx, 'a');
    EXPECT_TRUE(arena.alive(rx)) << pattern;
    EXPECT_LT(arena.num_nodes(), 20'000u) << pattern;
  }
  // Where counts are of different things they stay apart; the arena is spent before one derivative takes long.
  RegexArena arena({.max_derivative = 500});
  arena.start_clock(int64_t{1} << 40);
  Rx rx = *parse_regex(arena, "(([ab]{3,1000}c?){1,1000}|(a{2,999}b?){1,900}){1,1000}", RegexUse::kWhole);
  for (int i = 0; i < 1000 && rx != kNothing; ++i) rx = arena.derive(rx, 'a');
  EXPECT_TRUE(arena.spent());
}

// Sums of parts that a derivative flattens count, too: it took 40 ms each before the arena was spent.
TEST(Regex, CountsOfDifferentThingsAreSpentEarly) {
  for (const bool in_json : {false, true}) {
    RegexArena arena;
    arena.start_clock(int64_t{1} << 40);
    Rx rx = *parse_regex(arena, "(.{0,99}(a{0,99}(b{0,99}.{0,99}){0,99}){0,99}){0,99}", RegexUse::kWhole);
    if (in_json) rx = arena.json_body(rx);
    for (int i = 0; i < 100 && !arena.spent(); ++i) rx = arena.derive(rx, 'a');
    EXPECT_TRUE(arena.spent());
    EXPECT_LT(arena.num_nodes(), 50'000u);
  }
}

// Every text over a small alphabet against the standard library's engine.
TEST(Regex, AgreesWithTheStandardLibrary) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (depth > 0 ? pick(7) : pick(3)) {
      case 0: return std::string(1, static_cast<char>('a' + pick(3)));
      case 1: return "[ab]";
      case 2: return ".";
      case 3: return make(depth - 1) + make(depth - 1);
      case 4: return "(" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 5: return "(" + make(depth - 1) + ")" + std::string(1, "*+?"[pick(3)]);
      default: return "(" + make(depth - 1) + "){1,2}";
    }
  };
  std::vector<std::string> texts{""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  for (int i = 0; i < 150; ++i) {
    const std::string pattern = make(3);
    const std::regex standard(pattern);
    RegexArena arena;
    const auto rx = parse_regex(arena, pattern, RegexUse::kWhole);
    const auto search = parse_regex(arena, pattern + "$", RegexUse::kSearch);
    ASSERT_TRUE(rx && search) << pattern;
    const std::regex at_end("(" + pattern + ")$");
    for (const std::string& text : texts) {
      ASSERT_EQ(arena.matches(*rx, text), std::regex_match(text, standard)) << pattern << " on " << text;
    }
  }
}

// A mask allows exactly the tokens after which the text can still be completed.
TEST(Regex, MasksAreExact) {
  std::vector<std::string> tokens;
  for (const char* text : {"a", "b", "c", "ab", "ba", "bc", "abc", "ca", "cc", "aab", "", "bb"}) tokens.emplace_back(text);
  const auto vocabulary = Vocabulary::create(tokens);
  const TokenId end = 10;
  std::mt19937 random(3);
  for (const char* pattern : {"(ab)*c", "a?b?c?", "(a|b){2,5}c", "[abc]{4}", "(aab|ba)+", "a*b*"}) {
    const auto constraint = compile_regex(vocabulary, pattern);
    ASSERT_TRUE(constraint) << pattern;
    for (int round = 0; round < 20; ++round) {
      auto mask = (*constraint)->start({end});
      std::string text;
      for (int i = 0; i < 8; ++i) {
        uint32_t words[1];
        mask->fill(words);
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < 12; ++token) {
          const bool on = words[0] >> token & 1;
          if (token == end) {
            EXPECT_EQ(on, std::regex_match(text, std::regex(pattern))) << pattern << " " << text;
            continue;
          }
          const bool took = mask->accept(token);
          EXPECT_EQ(on, took) << pattern << ": " << text << " + " << tokens[static_cast<size_t>(token)];
          if (took) {
            mask->rollback(1);
            allowed.push_back(token);
          }
        }
        if (allowed.empty()) break;
        const TokenId next = allowed[random() % allowed.size()];
        ASSERT_TRUE(mask->accept(next));
        text += tokens[static_cast<size_t>(next)];
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
