#include "grammar/number_text.h"

#include <algorithm>
#include <cstdlib>

namespace deepinfer {
namespace {

constexpr int64_t kMaxDigits = 400;

Rx range(RegexArena& arena, char first, char last) { return first > last ? kNothing : arena.bytes(ByteSet::range(first, last)); }
Rx digits(RegexArena& arena, int32_t min, int32_t max) { return arena.repeat(range(arena, '0', '9'), min, max); }
Rx zeros(RegexArena& arena, int32_t min) { return arena.repeat(arena.literal("0"), min, kNoLimit); }

Rx any_fraction(RegexArena& arena) { return arena.optional(arena.concat(arena.literal("."), digits(arena, 1, kNoLimit))); }

// Numbers without sign.
Rx any_magnitude(RegexArena& arena) {
  const Rx whole = arena.alternate({arena.literal("0"), arena.concat(range(arena, '1', '9'), digits(arena, 0, kNoLimit))});
  return arena.concat(whole, any_fraction(arena));
}

// What may follow the whole part of `bound` so that the number is greater, or not less.
Rx greater_fraction(RegexArena& arena, const std::string& fraction, bool strictly) {
  const Rx rest = digits(arena, 0, kNoLimit);
  const Rx some_digit = arena.concat({rest, range(arena, '1', '9'), rest});
  if (fraction.empty()) return strictly ? arena.concat(arena.literal("."), some_digit) : any_fraction(arena);
  std::vector<Rx> choices;
  for (size_t i = 0; i < fraction.size(); ++i) {
    choices.push_back(
        arena.concat({arena.literal(fraction.substr(0, i)), range(arena, static_cast<char>(fraction[i] + 1), '9'), rest}));
  }
  choices.push_back(arena.concat(arena.literal(fraction), strictly ? some_digit : rest));
  return arena.concat(arena.literal("."), arena.alternate(std::move(choices)));
}

Rx magnitude_above(RegexArena& arena, const Decimal& bound, bool strictly) {
  const std::string& whole = bound.whole;
  const auto size = static_cast<int32_t>(whole.size());
  std::vector<Rx> choices;
  choices.push_back(arena.concat({range(arena, '1', '9'), digits(arena, size, kNoLimit), any_fraction(arena)}));
  for (int32_t i = 0; i < size; ++i) {
    const auto place = static_cast<size_t>(i);
    choices.push_back(arena.concat({arena.literal(whole.substr(0, place)), range(arena, static_cast<char>(whole[place] + 1), '9'),
                                    digits(arena, size - i - 1, size - i - 1), any_fraction(arena)}));
  }
  choices.push_back(arena.concat(arena.literal(whole), greater_fraction(arena, bound.fraction, strictly)));
  return arena.alternate(std::move(choices));
}

Rx magnitude_below(RegexArena& arena, const Decimal& bound, bool strictly) {
  return arena.intersect({any_magnitude(arena), arena.complement(magnitude_above(arena, bound, !strictly))});
}

Rx minus(RegexArena& arena, Rx magnitude) { return arena.concat(arena.literal("-"), magnitude); }

}  // namespace

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal out;
  out.whole.clear();
  size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    out.negative = true;
    ++at;
  }
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) out.whole += text[at];
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) out.fraction += text[at];
  }
  if (at < text.size()) {
    const std::string exponent(text.substr(at + 1));
    const int64_t shift = exponent.size() > 6 ? kMaxDigits + 1 : std::strtoll(exponent.c_str(), nullptr, 10);
    if (std::llabs(shift) > kMaxDigits) return std::nullopt;
    if (shift > 0) {
      out.fraction.resize(std::max<size_t>(out.fraction.size(), static_cast<size_t>(shift)), '0');
      out.whole += out.fraction.substr(0, static_cast<size_t>(shift));
      out.fraction.erase(0, static_cast<size_t>(shift));
    } else if (shift < 0) {
      const auto places = static_cast<size_t>(-shift);
      if (out.whole.size() < places) out.whole.insert(0, places - out.whole.size(), '0');
      out.fraction = out.whole.substr(out.whole.size() - places) + out.fraction;
      out.whole.resize(out.whole.size() - places);
    }
  }
  out.whole.erase(0, out.whole.find_first_not_of('0'));
  if (out.whole.empty()) out.whole = "0";
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  if (out.whole.size() + out.fraction.size() > kMaxDigits) return std::nullopt;
  if (out.zero()) out.negative = false;
  return out;
}

Rx plain_number(RegexArena& arena) { return arena.concat(arena.optional(arena.literal("-")), any_magnitude(arena)); }

Rx integer_number(RegexArena& arena, bool zero_fraction) {
  const Rx whole = arena.alternate({arena.literal("0"), arena.concat(range(arena, '1', '9'), digits(arena, 0, kNoLimit))});
  const Rx fraction = zero_fraction ? arena.optional(arena.concat(arena.literal("."), zeros(arena, 1))) : kEmptyText;
  return arena.concat({arena.optional(arena.literal("-")), whole, fraction});
}

Rx number_at_least(RegexArena& arena, const Decimal& bound, bool strictly) {
  if (!bound.negative && !bound.zero()) return magnitude_above(arena, bound, strictly);
  if (bound.zero()) {
    const Rx above = magnitude_above(arena, bound, strictly);
    return strictly ? above : arena.alternate({above, minus(arena, magnitude_below(arena, bound, false))});
  }
  return arena.alternate({any_magnitude(arena), minus(arena, magnitude_below(arena, bound, strictly))});
}

Rx number_at_most(RegexArena& arena, const Decimal& bound, bool strictly) {
  if (bound.negative) return minus(arena, magnitude_above(arena, bound, strictly));
  if (bound.zero()) {
    const Rx below = minus(arena, magnitude_above(arena, bound, strictly));
    return strictly ? below : arena.alternate({below, magnitude_below(arena, bound, false)});
  }
  return arena.alternate({minus(arena, any_magnitude(arena)), magnitude_below(arena, bound, strictly)});
}

Rx number_equal(RegexArena& arena, const Decimal& value) {
  Rx out = arena.literal(value.whole);
  if (value.fraction.empty()) {
    out = arena.concat(out, arena.optional(arena.concat(arena.literal("."), zeros(arena, 1))));
  } else {
    out = arena.concat({out, arena.literal("." + value.fraction), zeros(arena, 0)});
  }
  if (value.zero()) return arena.concat(arena.optional(arena.literal("-")), out);
  return value.negative ? minus(arena, out) : out;
}

std::optional<Rx> number_multiple(RegexArena& arena, const Decimal& divisor) {
  std::string all = divisor.whole + divisor.fraction;
  all.erase(0, all.find_first_not_of('0'));
  if (all.size() > 9 || divisor.fraction.size() > 9 || all.empty()) return std::nullopt;
  const auto modulus = static_cast<uint32_t>(std::strtoul(all.c_str(), nullptr, 10));
  const Rx multiple = arena.multiple_of(modulus, static_cast<uint32_t>(divisor.fraction.size()));
  return arena.intersect({plain_number(arena), arena.concat(arena.optional(arena.literal("-")), multiple)});
}

}  // namespace deepinfer
