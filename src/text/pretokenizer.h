// text/pretokenizer.h - cuts text into the pieces inside which BPE merges: V4.1's three isolating splits as code.
//
//   1  \p{N}{1,3}
//   2  [一-龥぀-ゟ゠-ヿ]+
//   3  [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
//      |  ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
// Each split works on the pieces the one before left, so numbers and Han runs end a segment of the third; what no
// alternative matches is a piece, too. All three are decided at the piece's first characters, hence one forward scan
// without memory: a piece's end depends on the text from its start only.
// Bytes that are not UTF-8 count as one kOther character each, and are kept.
// Threads: const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/char_classes.h"

namespace deepinfer {

// The patterns of the three splits as tokenizer.json spells them.
inline constexpr std::string_view kNumberSplit = R"(\p{N}{1,3})";
inline constexpr std::string_view kHanSplit = "[一-龥\u3040-ゟ゠-ヿ]+";
inline constexpr std::string_view kWordSplit =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class Pretokenizer {
 public:
  Pretokenizer();

  // End of the piece that starts at `at`. REQUIRES: at < end, and `at` is the text's start or the end of a piece.
  const uint8_t* next_piece(const uint8_t* at, const uint8_t* end) const;
  // Nothing but white space and line breaks.
  bool blank(const uint8_t* at, const uint8_t* end) const;

 private:
  struct Char {
    CharClass kind;
    uint8_t length;
  };

  Char char_at(const uint8_t* at, const uint8_t* end) const;
  Char wide_char_at(const uint8_t* at, const uint8_t* end) const;
  CharClass kind_at(const uint8_t* at, const uint8_t* end) const { return char_at(at, end).kind; }
  const uint8_t* skip(CharClass kind, const uint8_t* at, const uint8_t* end) const;
  const uint8_t* skip_letters(const uint8_t* at, const uint8_t* end) const;
  const uint8_t* number_end(const uint8_t* at, const uint8_t* end) const;
  const uint8_t* symbols_end(const uint8_t* at, const uint8_t* end) const;
  const uint8_t* space_end(const uint8_t* at, const uint8_t* end) const;
  const uint8_t* other_end(const uint8_t* at, const uint8_t* end) const;

  CharClasses classes_;
  CharClass ascii_[128];
};

}  // namespace deepinfer
