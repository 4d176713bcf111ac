#include "text/pretokenizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/test_data.h"

namespace deepinfer {
namespace {

using Pieces = std::vector<std::string>;

Pieces cut(const Pretokenizer& pretokenizer, const std::string& text) {
  Pieces pieces;
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = at + text.size();
  while (at < end) {
    const uint8_t* next = pretokenizer.next_piece(at, end);
    EXPECT_GT(next, at);
    EXPECT_LE(next, end);
    pieces.emplace_back(reinterpret_cast<const char*>(at), static_cast<size_t>(next - at));
    at = next;
  }
  return pieces;
}

TEST(Pretokenizer, CutsCode) {
  const Pretokenizer p;
  EXPECT_EQ(cut(p, "def f(x):\n    return x\n"), (Pieces{"def", " f", "(x", "):\n", "   ", " return", " x", "\n"}));
  EXPECT_EQ(cut(p, "a.append(12345)"), (Pieces{"a", ".append", "(", "123", "45", ")"}));
  EXPECT_EQ(cut(p, "x  =  'été'"), (Pieces{"x", " ", " =", " ", " '", "été", "'"}));
  EXPECT_EQ(cut(p, "{;\r\n\r\n  }"), (Pieces{"{;\r\n\r\n", " ", " }"}));
}

TEST(Pretokenizer, CutsWhiteSpace) {
  const Pretokenizer p;
  EXPECT_EQ(cut(p, "  a"), (Pieces{" ", " a"}));
  EXPECT_EQ(cut(p, "a  "), (Pieces{"a", "  "}));
  EXPECT_EQ(cut(p, " \n \n  b"), (Pieces{" \n \n", " ", " b"}));
  EXPECT_EQ(cut(p, "\t;"), (Pieces{"\t", ";"}));
  EXPECT_EQ(cut(p, "\tx"), (Pieces{"\tx"}));
  EXPECT_EQ(cut(p, "  1"), (Pieces{"  ", "1"}));  // a number ends the segment: all of it
  EXPECT_EQ(cut(p, "  中"), (Pieces{"  ", "中"}));
  EXPECT_EQ(cut(p, "\u3000\u3000a"), (Pieces{"\u3000", "\u3000a"}));
}

TEST(Pretokenizer, CutsHanAndKana) {
  const Pretokenizer p;
  EXPECT_EQ(cut(p, "中文abc"), (Pieces{"中文", "abc"}));
  EXPECT_EQ(cut(p, "カタ・カナ。"), (Pieces{"カタ", "・", "カナ", "。"}));
  EXPECT_EQ(cut(p, "\u3040か\u3040"), (Pieces{"\u3040か", "\u3040"}));  // unassigned: goes before a letter
  EXPECT_EQ(cut(p, "龦中"), (Pieces{"龦", "中"}));                      // U+9FA6 is outside the second split
}

TEST(Pretokenizer, CutsOthers) {
  const Pretokenizer p;
  EXPECT_EQ(cut(p, std::string("\x01\x02", 2) + "a"), (Pieces{"\x01",
                                                              "\x02"
                                                              "a"}));
  EXPECT_EQ(cut(p, "\xFF\xFE!"), (Pieces{"\xFF\xFE", "!"}));
  EXPECT_EQ(cut(p, "\xE4\xB8"), (Pieces{"\xE4\xB8"}));
  EXPECT_EQ(cut(p, "e\u0301\u0301"), (Pieces{"e\u0301\u0301"}));
}

// The three patterns by the letter, over code points: split, then match alternatives in order with backtracking spelled out.
class Reference {
 public:
  Pieces cut(const std::string& text) {
    std::vector<uint32_t> codes;
    for (size_t at = 0; at < text.size();) codes.push_back(next_code_point(text, at));
    Pieces pieces;
    for (const auto& numbers : split(codes, [&](const Codes&c, size_t at) { return number(c, at); })) {
      for (const auto& han : split(numbers, [&](const Codes&c, size_t at) { return run(c, at, is_han); })) {
        for (const auto& word : split(han, [&](const Codes&c, size_t at) { return this->word(c, at); })) {
          std::string piece;
          for (const uint32_t code : word) append_utf8(piece, code);
          pieces.push_back(piece);
        }
      }
    }
    return pieces;
  }

 private:
  using Codes = std::vector<uint32_t>;

  static utf8proc_category_t category(uint32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }
  static bool is_letter(uint32_t code) {
    return category(code) >= UTF8PROC_CATEGORY_LU && category(code) <= UTF8PROC_CATEGORY_LO;
  }
  static bool is_mark(uint32_t code) { return category(code) >= UTF8PROC_CATEGORY_MN && category(code) <= UTF8PROC_CATEGORY_ME; }
  static bool is_letter_or_mark(uint32_t code) { return is_letter(code) || is_mark(code); }
  static bool is_symbol(uint32_t code) {
    return category(code) >= UTF8PROC_CATEGORY_PC && category(code) <= UTF8PROC_CATEGORY_SO;
  }
  static bool is_number(uint32_t code) {
    return category(code) >= UTF8PROC_CATEGORY_ND && category(code) <= UTF8PROC_CATEGORY_NO;
  }
  static bool is_newline(uint32_t code) { return code == '\r' || code == '\n'; }
  static bool is_han(uint32_t code) { return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF); }
  static bool is_space(uint32_t code) {
    return (code >= 9 && code <= 13) || code == 0x85 ||
           (category(code) >= UTF8PROC_CATEGORY_ZS && category(code) <= UTF8PROC_CATEGORY_ZP);
  }
  static bool is_ascii_letter(uint32_t code) { return (code | 32) >= 'a' && (code | 32) <= 'z' && code < 128; }
  static bool is_ascii_symbol(uint32_t code) { return code > 32 && code < 127 && !is_ascii_letter(code) && !is_number(code); }

  template <class Is>
  static size_t run(const Codes& codes, size_t at, Is is) {
    while (at < codes.size() && is(codes[at])) ++at;
    return at;
  }
  static size_t number(const Codes& codes, size_t at) { return std::min(at + 3, run(codes, at, is_number)); }

  // End of the match at `at`, or `at` for none.
  size_t word(const Codes& c, size_t at) const {
    if (is_ascii_symbol(c[at])) {
      if (const size_t end = run(c, at + 1, is_ascii_letter); end > at + 1) return end;
    }
    if (!is_newline(c[at]) && !is_letter(c[at]) && !is_symbol(c[at])) {
      if (const size_t end = run(c, at + 1, is_letter_or_mark); end > at + 1) return end;
    }
    if (const size_t end = run(c, at, is_letter_or_mark); end > at) return end;
    const size_t symbol = at + (c[at] == ' ' ? 1 : 0);
    if (const size_t end = run(c, symbol, is_symbol); end > symbol) return run(c, end, is_newline);
    const size_t spaces = run(c, at, is_space);
    for (size_t from = spaces; from-- > at;) {  // \s* gives back until a line break follows
      if (is_newline(c[from])) return from + 1;
    }
    for (size_t end = spaces; end > at; --end) {
      if (end == c.size() || is_space(c[end])) return end;
    }
    return spaces;
  }

  template <class Match>
  static std::vector<Codes> split(const Codes& codes, Match match) {
    std::vector<Codes> out;
    Codes gap;
    for (size_t at = 0; at < codes.size();) {
      const size_t end = match(codes, at);
      if (end == at) {
        gap.push_back(codes[at++]);
        continue;
      }
      if (!gap.empty()) out.push_back(std::exchange(gap, {}));
      out.emplace_back(codes.begin() + static_cast<std::ptrdiff_t>(at), codes.begin() + static_cast<std::ptrdiff_t>(end));
      at = end;
    }
    if (!gap.empty()) out.push_back(gap);
    return out;
  }
};

// Holds a character that the system's utf8proc does not know yet.
bool is_newer(const std::string& text) {
  static const CharClasses classes;
  for (size_t at = 0; at < text.size();) {
    const uint32_t code = next_code_point(text, at);
    const CharClass kind = classes.of(code);
    if (utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_CN && kind != kOther && kind != kHanOther)
      return true;
  }
  return false;
}

TEST(Pretokenizer, EqualsThePatternsByTheLetter) {
  const Pretokenizer pretokenizer;
  Reference reference;
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = test::random_text(random, random() % 40 + 1, true);
    if (is_newer(text)) continue;
    ASSERT_EQ(cut(pretokenizer, text), reference.cut(text)) << text;
  }
}

TEST(Pretokenizer, KeepsEveryByteOfBrokenText) {
  const Pretokenizer pretokenizer;
  std::mt19937_64 random(8);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = test::random_text(random, random() % 40 + 1, false);
    std::string joined;
    for (const std::string& piece : cut(pretokenizer, text)) joined += piece;
    ASSERT_EQ(joined, text);
  }
}

TEST(CharClasses, CoverEveryCodePoint) {
  const CharClasses classes;
  int newer = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    const CharClass kind = classes.of(code);
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME;
    const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    const bool symbol = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO;
    if (category == UTF8PROC_CATEGORY_CN && kind != kOther && kind != kHanOther) {
      ++newer;  // assigned since the system's utf8proc
      continue;
    }
    ASSERT_EQ(letter, kind == kLetter || kind == kHanLetter) << code;
    ASSERT_EQ(symbol, kind == kSymbol || kind == kHanSymbol) << code;
    ASSERT_EQ(number, kind == kNumber) << code;
  }
  EXPECT_LE(newer, 5812);
}

}  // namespace
}  // namespace deepinfer
