// text/char_classes.h - what the pre-tokenizer needs to know of a character: one small class for each code point.
//
// Built once per tokenizer from utf8proc's categories (1 ms) into blocks of 64 code points, so that a UTF-8 sequence
// finds its class in two loads: the leading bytes choose the block, the last byte the place in it.
// Threads: const after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace deepinfer {

// The Han and kana of the second split are a segment of their own, hence their own copies of letter, symbol and other.
enum CharClass : uint8_t {
  kOther,    // control, format, private, unassigned, invalid bytes
  kLetter,   // \p{L} or \p{M}
  kSymbol,   // \p{P} or \p{S}
  kSpace,    // \s without CR and LF
  kNewline,  // CR, LF
  kNumber,   // \p{N}
  kHanLetter,
  kHanSymbol,
  kHanOther,
};

class CharClasses {
 public:
  CharClasses();

  CharClass of(uint32_t code_point) const { return in_block(code_point >> 6, code_point & 63); }
  // REQUIRES: block < 0x110000 / 64, place < 64.
  CharClass in_block(uint32_t block, uint32_t place) const {
    return static_cast<CharClass>(classes_[(uint32_t{blocks_[block]} << 6) + place]);
  }

 private:
  std::vector<uint16_t> blocks_;  // block number of 64 code points -> row in classes_
  std::vector<uint8_t> classes_;
};

}  // namespace deepinfer
