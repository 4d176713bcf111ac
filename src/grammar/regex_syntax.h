// grammar/regex_syntax.h - the text of a regular expression becomes a language.
//
// ECMA-262 syntax as JSON Schema wants it (with the u flag: characters are code points): classes, escapes, groups, greedy
// and lazy counts (they match the same texts), anchors, look-ahead. Back references, look-behind, word borders and
// Unicode properties are refused by name.
// Promise: bounded by the length of the pattern; any bytes give a language or an Error with the place.
// Threads: pure but for the arena.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/regex.h"

namespace deepinfer {

enum class RegexUse {
  kWhole,   // the text as a whole matches
  kSearch,  // some part of the text matches: JSON Schema's `pattern`
};

// The texts (UTF-8) that match.
Result<Rx> parse_regex(RegexArena& arena, std::string_view pattern, RegexUse use);

// What `.` matches: one character that ends no line.
Rx pattern_dot(RegexArena& arena);

}  // namespace deepinfer
