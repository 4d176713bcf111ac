// lab/eval/answer_text.h - finds in an answer what is to be judged: a number, a boxed value, a letter, a block of code.
//
// Promise: any bytes give a result or none; numbers are compared as decimal text, so no size or fraction is rounded away.
// Threads: pure functions.
//
//   last_number("3 boxes, so $1,204.50.")   ->  "1204.50"
//   same_number("1204.5", "1204.50")        ->  true
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace deepinfer {

std::string_view trimmed(std::string_view text);

// The last number of a text without its commas: an optional '-' directly before a digit, digits, commas between groups of
// three, an optional fraction. Nothing when there is none.
std::optional<std::string> last_number(std::string_view text);
// By value; plain decimals exactly, numbers with an exponent as doubles.
bool same_number(std::string_view a, std::string_view b);

// `word` occurs in `text`, letter case (of ASCII) aside, and no letter or digit stands directly before or after it.
bool contains_word(std::string_view text, std::string_view word);

// Equal, whatever the order of object keys, numbers by value.
bool same_json(const Json& a, const Json& b);

// What the last \boxed{...} or \fbox{...} holds.
std::optional<std::string> last_boxed(std::string_view text);
// The rest of the line behind the last "Answer:" (letter case and emphasis aside).
std::optional<std::string> after_answer_mark(std::string_view text);
// The letter an answer chooses: behind the last "Answer:", boxed, or alone. 'A' .. the last of `num_choices`.
std::optional<char> chosen_letter(std::string_view text, int num_choices);
// The last whole number of what the answer marks as its result, else of the text; leading zeros dropped.
std::optional<std::string> last_integer(std::string_view text);

// For free-form answers: lower case, without LaTeX dressing, quotes, a final dot and doubled spaces.
std::string normalised_answer(std::string_view text);

// The code of an answer: the first fenced block that holds `wanted`, else the first one, else the whole text.
std::string code_of(std::string_view text, std::string_view wanted);

}  // namespace deepinfer
