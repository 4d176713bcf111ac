// grammar/a_label_tables.h - code points as RFC 5892 and 5893 see them, for a_label.cc.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

namespace deepinfer {

// PVALID, or allowed in some context.
bool label_may_hold(uint32_t code);
bool needs_context(uint32_t code);
bool is_mark(uint32_t code);
bool is_greek(uint32_t code);
bool is_hebrew(uint32_t code);
bool is_han_or_kana(uint32_t code);
bool is_virama(uint32_t code);

enum class Joining { kNone, kNext, kPrevious, kTransparent };  // kNext: with what is before it, or with both
Joining joining_of(uint32_t code);

enum class Direction { kOther, kLeft, kRight, kArabicNumber, kNumber, kMark, kNeutral };
Direction direction_of(uint32_t code);

// In normal form C, if each code point is by itself.
bool is_composed(const std::vector<uint32_t>& codes);

}  // namespace deepinfer
