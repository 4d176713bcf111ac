// recipe/python_json.h - the two ways the recipe writes JSON.
//
// python_json: what the prompt shows; separators ", " and ": ", numbers as Python prints them.
// compact_json: what output constraints hold; separators "," and ":", exponents without padding (1e-7, 1e+21).
// Both keep key order and non-ASCII text; integers of 64 bits stay exact, every other number goes through a double and
// comes out with the fewest digits that read back to it; a repeated key keeps its first place and its last value.
#pragma once

#include <string>

#include "base/json.h"

namespace deepinfer {

std::string python_json(const Json& value);
std::string compact_json(const Json& value);

// A double as Python's repr prints it: 1.0, -0.0, 1e-05, 1e+16.
std::string python_number(double value);

// True when the number is an integer that fits int64 or uint64 and so keeps its digits.
bool is_exact_integer(const Json& number);

// False when some number anywhere in `value` is too large for a double, such as 1e400.
bool numbers_fit_double(const Json& value);

}  // namespace deepinfer
