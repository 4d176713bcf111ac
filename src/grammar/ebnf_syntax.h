// grammar/ebnf_syntax.h - the text of an EBNF grammar as rules of expressions.
//
// Threads: values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/regex.h"

namespace deepinfer {

struct EbnfExpression {
  enum class Kind { kTerminal, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  Rx terminal = kEmptyText;
  size_t rule = 0;
  int32_t min = 0, max = 0;  // of kRepeat; max may be kNoLimit
  std::vector<EbnfExpression> parts;
};

struct EbnfGrammar {
  struct Rule {
    std::string name;
    bool defined = false;
    size_t at = 0;  // of its first mention
    EbnfExpression body;
  };
  std::string_view text;
  std::vector<Rule> rules;
  size_t start = 0;
  Error fault(size_t at, std::string_view what) const;
};

// What it gives refers to `text`.
Result<EbnfGrammar> parse_ebnf_text(RegexArena& arena, std::string_view text);

}  // namespace deepinfer
