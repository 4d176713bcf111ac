#include "grammar/json_text.h"

#include "grammar/char_class.h"

namespace deepinfer {
namespace {

Rx one_of(RegexArena& arena, std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.add(static_cast<uint8_t>(c));
  return arena.bytes(set);
}

Rx digits(RegexArena& arena, int32_t min, int32_t max) { return arena.repeat(arena.bytes(ByteSet::range('0', '9')), min, max); }

}  // namespace

Rx json_char(RegexArena& arena) {
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const Rx hex = one_of(arena, kHex);
  // Not D800 to DFFF; then the two halves of a pair.
  const Rx plain = arena.alternate({arena.concat({one_of(arena, "0123456789abcefABCEF"), hex, hex, hex}),
                                    arena.concat({one_of(arena, "dD"), one_of(arena, "01234567"), hex, hex})});
  const Rx high = arena.concat({one_of(arena, "dD"), one_of(arena, "89abAB"), hex, hex});
  const Rx low = arena.concat({one_of(arena, "dD"), one_of(arena, "cdefCDEF"), hex, hex});
  const Rx wide = arena.concat(arena.literal("u"), arena.alternate({plain, arena.concat({high, arena.literal("\\u"), low})}));
  const Rx escape = arena.concat(arena.literal("\\"), arena.alternate({one_of(arena, "\"\\/bfnrt"), wide}));
  const CodePointSet raw{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
  return arena.alternate({utf8(arena, raw), escape});
}

Rx json_space(RegexArena& arena) {
  const Rx line =
      arena.concat({arena.optional(arena.literal("\r")), arena.literal("\n"), arena.repeat(one_of(arena, " \t"), 0, 40)});
  return arena.alternate({arena.repeat(arena.literal(" "), 0, 2), line});
}

Rx json_body_of_any(RegexArena& arena) { return arena.repeat(json_char(arena), 0, kNoLimit); }

Rx texts_without(RegexArena& arena, const std::vector<std::string_view>& marks) {
  std::vector<Rx> literals;
  for (const std::string_view mark : marks) literals.push_back(arena.literal(mark));
  return arena.complement(arena.concat({kAnyBytes, arena.alternate(std::move(literals)), kAnyBytes}));
}

Rx json_string(RegexArena& arena, Rx text) {
  const Rx quote = arena.literal("\"");
  const Rx body = text == any_text(arena) ? json_body_of_any(arena) : arena.json_body(arena.with_plain_hosts(text));
  return arena.concat({quote, body, quote});
}

Rx json_number(RegexArena& arena) {
  const Rx whole =
      arena.alternate({arena.literal("0"), arena.concat(arena.bytes(ByteSet::range('1', '9')), digits(arena, 0, kNoLimit))});
  const Rx fraction = arena.concat(arena.literal("."), digits(arena, 1, kNoLimit));
  const Rx exponent = arena.concat({one_of(arena, "eE"), arena.optional(one_of(arena, "+-")), digits(arena, 1, kNoLimit)});
  return arena.concat({arena.optional(arena.literal("-")), whole, arena.optional(fraction), arena.optional(exponent)});
}

}  // namespace deepinfer
