// recipe/branch_matcher.h - finds the first of several patterns in text that arrives in pieces.
//
// A stage of the output parser looks for a few patterns at once and must hold back text that could still become one of
// them. Three kinds: a literal; a literal that also swallows the line feeds directly before it; one line feed as the very
// first character. Bytes are enough: patterns and text are UTF-8, so a partial match never ends inside a character when
// the text does not.
// Quirk kept from the reference: a line feed that breaks a partial match is not counted as one standing before the next.
// Threads: one parser owns it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace deepinfer {

struct BranchPattern {
  enum class Kind { kLiteral, kLiteralAfterNewlines, kLeadingNewline };
  Kind kind = Kind::kLiteral;
  std::string literal;
};

class BranchMatcher {
 public:
  static constexpr int kNone = -1;

  explicit BranchMatcher(const std::vector<BranchPattern>& patterns);

  void reset();
  // Takes the next byte. Returns the first pattern of the list that ends here, or kNone; match_length() then tells how
  // many bytes it covers.
  int advance(char byte);
  size_t match_length() const { return match_length_; }
  // Bytes at the end of the text so far that may still become part of a match.
  size_t held() const;
  // True as long as no byte came and a leading line feed is looked for.
  bool waits_for_first_byte() const { return fresh_ && has_leading_; }

 private:
  struct Automaton {
    BranchPattern pattern;
    std::vector<size_t> border;  // Knuth-Morris-Pratt: longest proper border of each prefix
    size_t state = 0;
    size_t newlines = 0;
  };
  static size_t step(const Automaton& automaton, char byte);
  bool advance_one(Automaton& automaton, char byte);

  std::vector<Automaton> automata_;
  size_t match_length_ = 0;
  bool fresh_ = true;
  bool has_leading_ = false;
};

}  // namespace deepinfer
