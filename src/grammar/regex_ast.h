// grammar/regex_ast.h - the tree of a regular expression, between its text and its language.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/char_class.h"

namespace deepinfer {

struct RegexNode {
  enum class Kind { kEmpty, kChars, kConcat, kAlternate, kRepeat, kBegin, kEnd, kLookAhead, kNotAhead };
  Kind kind = Kind::kEmpty;
  CodePointSet chars;
  std::vector<RegexNode> children;
  int32_t min = 0, max = 0;  // of kRepeat; max may be kNoLimit
};

// Errors give the offset. `pattern` must be UTF-8.
Result<RegexNode> parse_regex_tree(std::string_view pattern);

}  // namespace deepinfer
