// grammar/json_text.h - the pieces of JSON's own syntax.
//
// Threads: pure but for the arena.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/regex.h"

namespace deepinfer {

// One character inside a string: as it is, or any escape that JSON knows; surrogates in pairs only.
Rx json_char(RegexArena& arena);
// White space between two tokens: nothing, one or two blanks, or a new line with up to 40 blanks or tabs. Bounded, so that
// an answer can not run on without saying anything.
Rx json_space(RegexArena& arena);
// What stands between the quotes of a string that may be any text.
Rx json_body_of_any(RegexArena& arena);
// A string with its quotes; `text` is what it may decode to, any_text() for all.
Rx json_string(RegexArena& arena, Rx text);
// Byte texts that hold none of `marks`.
Rx texts_without(RegexArena& arena, const std::vector<std::string_view>& marks);
// Any number.
Rx json_number(RegexArena& arena);

}  // namespace deepinfer
