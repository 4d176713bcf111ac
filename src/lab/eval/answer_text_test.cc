#include "lab/eval/answer_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>

namespace deepinfer {
namespace {

TEST(LastNumber, ReadsWhatTheFormatSays) {
  const std::array<std::pair<const char*, const char*>, 14> cases = {{{"How 3 then 4?", "4"},
                                                                      {"It costs $1,204.50.", "1204.50"},
                                                                      {"1,23", "23"},
                                                                      {"12,345,678", "12345678"},
                                                                      {"1234,567", "567"},
                                                                      {"1,2345", "2345"},
                                                                      {"is -7", "-7"},
                                                                      {"5 - 7", "7"},
                                                                      {"10-3", "-3"},
                                                                      {"--3", "-3"},
                                                                      {"3.", "3"},
                                                                      {".5", "5"},
                                                                      {"25%", "25"},
                                                                      {"18cm", "18"}}};
  for (const auto& [text, number] : cases) EXPECT_EQ(last_number(text), number) << text;
  for (const char* text : {"", "none", "-", "- ,."}) EXPECT_FALSE(last_number(text)) << text;
}

TEST(SameNumber, ByValueAndExact) {
  EXPECT_TRUE(same_number("7", "7.0"));
  EXPECT_TRUE(same_number("007", "7"));
  EXPECT_TRUE(same_number("-0", "0.00"));
  EXPECT_TRUE(same_number("1e3", "1000"));
  EXPECT_FALSE(same_number("7", "-7"));
  EXPECT_FALSE(same_number("9007199254740993", "9007199254740992"));  // equal as doubles
  EXPECT_FALSE(same_number("0.1", "0.10000000000000001"));
}

TEST(ContainsWord, WholeWordsOnly) {
  EXPECT_TRUE(contains_word("The answer is EVEN.", "even"));
  EXPECT_TRUE(contains_word("84", "84"));
  EXPECT_TRUE(contains_word("(84)", "84"));
  EXPECT_TRUE(contains_word("Seven, even", "even"));
  EXPECT_TRUE(contains_word("a — even — b", "even"));  // a dash is no letter
  EXPECT_FALSE(contains_word("seven", "even"));
  EXPECT_FALSE(contains_word("evenly", "even"));
  EXPECT_FALSE(contains_word("848", "84"));
  EXPECT_FALSE(contains_word("éeven", "even"));
  EXPECT_FALSE(contains_word("evenя", "even"));
  EXPECT_FALSE(contains_word("", "even"));
}

TEST(SameJson, KeysInAnyOrderNumbersByValue) {
  const auto same = [](const char* a, const char* b) { return same_json(*Json::parse(a), *Json::parse(b)); };
  EXPECT_TRUE(same(R"({"a": 1, "b": [1.0, true, null]})", R"({"b": [1, true, null], "a": 1.00})"));
  EXPECT_FALSE(same(R"({"a": 1})", R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(same(R"({"a": 1, "c": 2})", R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(same("[1, 2]", "[2, 1]"));
  EXPECT_FALSE(same("\"1\"", "1"));
}

TEST(Boxed, TheLastOneThatCloses) {
  EXPECT_EQ(last_boxed("\\boxed{1} then \\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(last_boxed("\\fbox{A}"), std::nullopt);
  EXPECT_EQ(last_boxed("\\boxed{ 42 }."), "42");
  EXPECT_EQ(last_boxed("\\boxed{7} and \\boxed{"), "7");
  EXPECT_EQ(last_boxed("unboxed{7}"), std::nullopt);
}

TEST(ChosenLetter, FromMarkBoxOrAlone) {
  const std::array<const char*, 12> b = {"Answer: B",
                                         "**Answer: B**",
                                         "Final answer: (B)",
                                         "answer : b.",
                                         "\\boxed{B}",
                                         "Answer: \\boxed{B}",
                                         "B",
                                         "(B).",
                                         "Answer: $\\text{B}$",
                                         "Answer: A\nno\nAnswer: B) because",
                                         "**Answer:** B",
                                         "\\boxed{\\text{B}}"};
  for (const char* text : b) EXPECT_EQ(chosen_letter(text, 4), 'B') << text;
  for (const char* text : {"", "Answer: E", "Answer: Because", "A long talk about B and its kin", "Answer:"}) {
    EXPECT_FALSE(chosen_letter(text, 4)) << text;
  }
  EXPECT_EQ(chosen_letter("Answer: E", 26), 'E');
}

TEST(LastInteger, MarkedBeforeLoose) {
  EXPECT_EQ(last_integer("\\boxed{025} of 100"), "25");
  EXPECT_EQ(last_integer("Answer: 73.\nIt has 3 digits"), "73");
  EXPECT_EQ(last_integer("so 1,000"), "1000");
  EXPECT_EQ(last_integer("x = 12.0"), "12");
  EXPECT_EQ(last_integer("\\boxed{12.5}"), std::nullopt);
  EXPECT_EQ(last_integer("none"), std::nullopt);
}

TEST(NormalisedAnswer, DressingGoes) {
  EXPECT_EQ(normalised_answer("  The  **Eiffel** Tower. "), "the eiffel tower");
  EXPECT_EQ(normalised_answer("$\\text{Mg}$"), "mg");
  EXPECT_EQ(normalised_answer("\\(x^2\\)"), "x^2");
  EXPECT_EQ(normalised_answer("\\boxed{\\mathbf{7}}"), "7");
  EXPECT_EQ(normalised_answer("\\text{open"), "\\text{open");
  EXPECT_EQ(normalised_answer(""), "");
}

TEST(CodeOf, TheBlockWithTheFunction) {
  EXPECT_EQ(code_of("```python\nx = 1\n```\nand\n```\ndef f(x):\n  pass\n```", "def f("), "def f(x):\n  pass\n");
  EXPECT_EQ(code_of("```python\nx = 1\n```", "def f("), "x = 1\n");
  EXPECT_EQ(code_of("return 1", "def f("), "return 1");
  EXPECT_EQ(code_of("```python\ncut off", "def f("), "cut off");
  EXPECT_EQ(code_of("```python\nx = 1```", "def f("), "x = 1");
  EXPECT_EQ(code_of("```", "def f("), "```");
}

// Whatever a model says, nothing is read beyond its end.
TEST(AnswerText, TakesAnyBytes) {
  rc::check([] {
    const auto pieces = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("\\boxed{", "}", "{", "```", "\n", "Answer:", "**", "-", "1,234", ".5", "7", "\\text{", "B",
                                      " ", "\xc3", "\xe2\x80", "a", "####"));
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    last_number(text);
    last_boxed(text);
    after_answer_mark(text);
    chosen_letter(text, 4);
    last_integer(text);
    normalised_answer(text);
    code_of(text, "B");
    RC_ASSERT(!contains_word(text, "absent"));
  });
}

TEST(LastNumber, FindsAnyNumberThatWasWritten) {
  rc::check([](int64_t value) {
    std::string digits = std::to_string(value < 0 ? -(value / 2) : value / 2), grouped;
    for (size_t i = 0; i < digits.size(); ++i)
      grouped += ((digits.size() - i) % 3 == 0 && i > 0 ? "," : "") + digits.substr(i, 1);
    const std::string sign = value < 0 && value / 2 != 0 ? "-" : "";
    const auto found = last_number("first 12, then " + sign + grouped + ".");
    RC_ASSERT(found.has_value());
    RC_ASSERT(same_number(*found, sign + digits));
  });
}

}  // namespace
}  // namespace deepinfer
