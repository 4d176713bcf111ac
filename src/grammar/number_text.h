// grammar/number_text.h - which decimal texts are numbers of a range or multiples of a number.
//
// Where a number is constrained it is written plainly: sign, digits, point, digits, no exponent. Bounds and divisors are
// taken from the schema's text digit by digit, never through a double, so 0.1 is a tenth and 2^70 is exact.
// Threads: pure but for the arena.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "grammar/regex.h"

namespace deepinfer {

// A decimal number taken apart: no leading zeros before, no trailing zeros behind the point.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;
  bool zero() const { return whole == "0" && fraction.empty(); }
};
// Of a number in JSON syntax; nothing when its exponent would make it longer than 400 digits.
std::optional<Decimal> parse_decimal(std::string_view json_number);

Rx plain_number(RegexArena& arena);                        // all of them
Rx integer_number(RegexArena& arena, bool zero_fraction);  // with or without ".0"
Rx number_at_least(RegexArena& arena, const Decimal& bound, bool strictly);
Rx number_at_most(RegexArena& arena, const Decimal& bound, bool strictly);
Rx number_equal(RegexArena& arena, const Decimal& value);
// Nothing when the divisor has more than nine digits.
std::optional<Rx> number_multiple(RegexArena& arena, const Decimal& divisor);

}  // namespace deepinfer
