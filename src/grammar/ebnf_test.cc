#include "grammar/ebnf.h"

#include <gtest/gtest.h>

#include "grammar/constraint.h"
#include "grammar/test_vocabulary.h"

namespace deepinfer {
namespace {

TEST(Ebnf, RecursionRepetitionAndErrors) {
  constexpr std::string_view kArithmetic = R"EBNF(
    # sums and products
    root ::= expr
    expr ::= term (("+" | "-") term)*
    term ::= number | "(" expr ")" | term "*" number   // left recursion
    number ::= [0-9]{1,3} ("." /[0-9]+/)?
  )EBNF";
  const auto constraint = compile_ebnf(byte_vocabulary(), kArithmetic);
  ASSERT_TRUE(constraint) << constraint.error().message;
  for (const char* text : {"1", "1+2", "(1-(2+3.5))*4+7", "1*2*3*4"}) EXPECT_TRUE((*constraint)->matches(text)) << text;
  for (const char* text : {"", "1+", "(1", "1234", "1 + 2", ")"}) EXPECT_FALSE((*constraint)->matches(text)) << text;
  const auto error = [](std::string_view grammar) {
    const auto out = compile_ebnf(byte_vocabulary(), grammar);
    return out ? "accepted" : out.error().message;
  };
  EXPECT_NE(error("root ::= a").find("line 1, column 10: the rule 'a' is not defined"), std::string::npos);
  EXPECT_NE(error("root ::= \"äöü\" a").find("column 16: the rule 'a'"), std::string::npos);
  EXPECT_NE(error("root ::= \"x\"\nroot ::= \"y\"").find("line 2"), std::string::npos);
  // The place of a name at the end of a line, which was that of what follows.
  EXPECT_NE(error("root ::= \"(\" a\n\n\nb ::= \"x\"").find("line 1, column 14: the rule 'a'"), std::string::npos);
  EXPECT_NE(error("root ::= \"(\" root \")\"").find("no text satisfies"), std::string::npos);
  EXPECT_NE(error("root ::= (\"a\"").find("without ')'"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
