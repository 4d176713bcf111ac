#include "recipe/branch_matcher.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace deepinfer {
namespace {

using Kind = BranchPattern::Kind;

// First match as (pattern, end of text, length), or pattern -1.
struct Found {
  int pattern = -1;
  size_t end = 0, length = 0;
};
Found find(BranchMatcher& matcher, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const int pattern = matcher.advance(text[i]);
    if (pattern != BranchMatcher::kNone) return {pattern, i + 1, matcher.match_length()};
  }
  return {};
}

TEST(BranchMatcher, FirstInListWinsAtOnePlace) {
  BranchMatcher matcher({{Kind::kLiteral, "bc"}, {Kind::kLiteral, "abc"}});
  const Found found = find(matcher, "xabc");
  EXPECT_EQ(found.pattern, 0);
  EXPECT_EQ(found.length, 2u);
}

TEST(BranchMatcher, NewlinesBeforeALiteralBelongToIt) {
  BranchMatcher matcher({{Kind::kLiteralAfterNewlines, "<x>"}});
  const Found found = find(matcher, "a\n\n<x>");
  EXPECT_EQ(found.length, 5u);
}

TEST(BranchMatcher, ANewlineThatBreaksAMatchIsNotCounted) {
  BranchMatcher matcher({{Kind::kLiteralAfterNewlines, "<x>"}});
  EXPECT_EQ(find(matcher, "<x\n<x>").length, 3u);
  matcher.reset();
  EXPECT_EQ(find(matcher, "<x\n\n<x>").length, 4u);
}

TEST(BranchMatcher, LeadingNewlineOnlyAsFirstByte) {
  BranchMatcher matcher({{Kind::kLeadingNewline, ""}});
  EXPECT_TRUE(matcher.waits_for_first_byte());
  EXPECT_EQ(matcher.advance('\n'), 0);
  matcher.reset();
  EXPECT_EQ(matcher.advance('a'), BranchMatcher::kNone);
  EXPECT_EQ(matcher.advance('\n'), BranchMatcher::kNone);
}

TEST(BranchMatcher, HoldsTheLongestPartialMatch) {
  BranchMatcher matcher({{Kind::kLiteral, "abab!"}, {Kind::kLiteralAfterNewlines, "ab?"}});
  EXPECT_EQ(find(matcher, "x\nab").pattern, -1);
  EXPECT_EQ(matcher.held(), 3u);
  EXPECT_EQ(find(matcher, "ab").pattern, -1);
  EXPECT_EQ(matcher.held(), 4u);
}

TEST(BranchMatcher, FindsWhatASearchFinds) {
  rc::check("a literal is found where find() finds it", [] {
    const auto letters = rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab")));
    const std::string text = *letters;
    const std::string literal = *rc::gen::suchThat(letters, [](const std::string& s) { return !s.empty(); });
    BranchMatcher matcher({{Kind::kLiteral, literal}});
    const Found found = find(matcher, text);
    const size_t want = text.find(literal);
    RC_ASSERT((found.pattern == -1) == (want == std::string::npos));
    if (found.pattern == 0) RC_ASSERT(found.end - found.length == want);
  });
}

}  // namespace
}  // namespace deepinfer
