// grammar/ebnf.h - grammars in EBNF, written like GBNF or Lark.
//
//   root   ::= expr                    the rule `root` or `start`, else the first, is the whole answer
//   expr   ::= term (("+" | "-") term)*
//   term   ::= number | "(" expr ")"   a name may be used before its rule and in itself
//   number ::= [0-9]+ ("." /[0-9]{1,3}/)?
//
// "text" with JSON's escapes, [classes] and /regular expressions/ (grammar/regex_syntax.h, the whole piece), groups, | between
// choices, and * + ? {n} {n,} {n,m} behind a part. `:` and `=` do for `::=`, a `;` may end a rule; `#` and `//` begin comments.
// White space separates and is never part of the language. Rules that do not recur become one regular expression. Errors give
// line and column. A rule that no text can satisfy is an error. Threads: pure.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/rules.h"

namespace deepinfer {

// No text of it holds any of `marks`. Where rules recur a mark might be put together from their parts, so none of these holds a
// character of a mark that is not ASCII. REQUIRES: each mark has such a character.
Result<std::unique_ptr<FixedRules>> parse_ebnf(RegexArena& arena, std::string_view grammar,
                                               const std::vector<std::string_view>& marks = {});

}  // namespace deepinfer
