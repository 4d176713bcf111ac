#include "recipe/branch_matcher.h"

#include <algorithm>

namespace deepinfer {

namespace {

std::vector<size_t> borders(const std::string& literal) {
  std::vector<size_t> border(literal.size() + 1, 0);
  for (size_t i = 1, k = 0; i < literal.size(); ++i) {
    while (k > 0 && literal[i] != literal[k]) k = border[k];
    if (literal[i] == literal[k]) ++k;
    border[i + 1] = k;
  }
  return border;
}

}  // namespace

BranchMatcher::BranchMatcher(const std::vector<BranchPattern>& patterns) {
  for (const BranchPattern& pattern : patterns) {
    automata_.push_back({pattern, borders(pattern.literal), 0, 0});
    has_leading_ = has_leading_ || pattern.kind == BranchPattern::Kind::kLeadingNewline;
  }
}

void BranchMatcher::reset() {
  fresh_ = true;
  for (Automaton& automaton : automata_) automaton.state = automaton.newlines = 0;
}

size_t BranchMatcher::step(const Automaton& automaton, char byte) {
  const std::string& literal = automaton.pattern.literal;
  size_t state = automaton.state;
  while (state > 0 && literal[state] != byte) state = automaton.border[state];
  return literal[state] == byte ? state + 1 : 0;
}

bool BranchMatcher::advance_one(Automaton& automaton, char byte) {
  if (automaton.pattern.kind == BranchPattern::Kind::kLeadingNewline) {
    match_length_ = 1;
    return fresh_ && byte == '\n';
  }
  const size_t before = automaton.state;
  automaton.state = step(automaton, byte);
  if (automaton.state == 0) {
    automaton.newlines = before == 0 && byte == '\n' ? automaton.newlines + 1 : 0;
  } else if (before > 0 && automaton.state <= before) {
    automaton.newlines = 0;
  }
  if (automaton.state < automaton.pattern.literal.size()) return false;
  const bool swallow = automaton.pattern.kind == BranchPattern::Kind::kLiteralAfterNewlines;
  match_length_ = automaton.state + (swallow ? automaton.newlines : 0);
  return true;
}

int BranchMatcher::advance(char byte) {
  for (size_t i = 0; i < automata_.size(); ++i) {
    if (advance_one(automata_[i], byte)) return static_cast<int>(i);
  }
  fresh_ = false;
  return kNone;
}

size_t BranchMatcher::held() const {
  size_t longest = 0;
  for (const Automaton& automaton : automata_) {
    if (automaton.pattern.kind == BranchPattern::Kind::kLeadingNewline) continue;
    const bool swallow = automaton.pattern.kind == BranchPattern::Kind::kLiteralAfterNewlines;
    longest = std::max(longest, automaton.state + (swallow ? automaton.newlines : 0));
  }
  return longest;
}

}  // namespace deepinfer
