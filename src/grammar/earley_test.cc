#include "grammar/earley.h"

#include <gtest/gtest.h>

#include "grammar/automaton.h"
#include "grammar/ebnf.h"
#include "grammar/test_vocabulary.h"

namespace deepinfer {
namespace {

Automaton automaton(std::string_view ebnf) {
  Lexer lexer;
  auto rules = parse_ebnf(lexer.arena(), ebnf);
  EXPECT_TRUE(rules) << (rules ? "" : rules.error().message);
  return Automaton(byte_vocabulary(), lexer, *std::move(rules));
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// A text that is read in ever so many ways has few rows, however long it gets.
TEST(Earley, AmbiguityDoesNotGrowWithTheText) {
  const std::string doubled = "root ::= root root | \"a\"", tripled = "root ::= root root root | root root | \"a\" | \"ab\"",
                    words = "root ::= word root | word\nword ::= [a-z]+ | word word",
                    sums = "root ::= root \"+\" root | root \"*\" root | \"(\" root \")\" | [0-9]+";
  for (const auto& [ebnf, text, wrong] :
       {std::tuple(doubled, repeated("a", 3000), "b"), std::tuple(tripled, repeated("aab", 1000), "c"),
        std::tuple(words, repeated("ab", 1500), "1"), std::tuple(sums, repeated("12+(3*4)*", 500) + "1", ")")}) {
    Automaton tested = automaton(ebnf);
    GrammarState state = tested.begin();
    ASSERT_TRUE(tested.advance(state, text)) << ebnf;
    EXPECT_TRUE(state.complete) << ebnf;
    EXPECT_LT(tested.num_rows(), 40u) << ebnf;
    EXPECT_LT(state.threads.size(), 5u) << ebnf;
    EXPECT_FALSE(tested.advance(state, wrong)) << ebnf;
  }
}

// What is really nested keeps its depth: merging loses nothing.
TEST(Earley, NestingIsKept) {
  Automaton tested = automaton("root ::= \"(\" root \")\" | \"[\" root \"]\" | root root | \"x\"");
  for (const auto& [text, whole] :
       {std::pair("([x])", true), std::pair("([x)]", false), std::pair("(((x)x)([x]x))x", true), std::pair("((x)", false)}) {
    GrammarState state = tested.begin();
    EXPECT_EQ(tested.advance(state, text) && state.complete, whole) << text;
  }
  const int depth = 500;
  GrammarState state = tested.begin();
  ASSERT_TRUE(tested.advance(state, repeated("([", depth) + "x" + repeated("])", depth)));
  EXPECT_TRUE(state.complete);
  EXPECT_FALSE(tested.advance(state, ")"));
}

// Rows are numbers that are given again after truncate(): nothing may still lead to what was there.
TEST(Earley, ForgottenRowsAreForgotten) {
  Automaton tested = automaton("root ::= \"(\" root \")\" | \"[\" root \"]\" | \"x\" | root \",\" root");
  GrammarState first = tested.begin();
  ASSERT_TRUE(tested.advance(first, "(["));
  const size_t rows = tested.num_rows();
  for (const char* text : {"(x),x", "[[x", "x,x])", "x])", "((((x"}) {
    for (const char* other : {"x]),(x)", "[x]]),x", "x])"}) {
      GrammarState state = first;
      EXPECT_TRUE(tested.advance(state, text)) << text;
      tested.truncate(rows);
      state = first;
      EXPECT_TRUE(tested.advance(state, other) && state.complete) << text << " " << other;
      EXPECT_FALSE(tested.advance(state, "]"));
      tested.truncate(rows);
    }
  }
}

}  // namespace
}  // namespace deepinfer
