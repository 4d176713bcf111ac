#include "text/char_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

namespace deepinfer {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

struct Range {
  uint32_t first, last;
  CharClass kind;
};

// What Unicode 15.1 and 16 assigned. The reference implementation knows them, utf8proc 2.8 stops at Unicode 15.0, and ids
// must not depend on which one a system ships.
constexpr Range kSinceUnicode15[] = {
    {0x897, 0x897, kLetter},     {0x1B4E, 0x1B4F, kSymbol},   {0x1B7F, 0x1B7F, kSymbol},   {0x1C89, 0x1C8A, kLetter},
    {0x2427, 0x2429, kSymbol},   {0x2FFC, 0x2FFF, kSymbol},   {0x31E4, 0x31E5, kSymbol},   {0x31EF, 0x31EF, kSymbol},
    {0xA7CB, 0xA7CD, kLetter},   {0xA7DA, 0xA7DC, kLetter},   {0x105C0, 0x105F3, kLetter}, {0x10D40, 0x10D49, kNumber},
    {0x10D4A, 0x10D65, kLetter}, {0x10D69, 0x10D6D, kLetter}, {0x10D6E, 0x10D6E, kSymbol}, {0x10D6F, 0x10D85, kLetter},
    {0x10D8E, 0x10D8F, kSymbol}, {0x10EC2, 0x10EC4, kLetter}, {0x10EFC, 0x10EFC, kLetter}, {0x11380, 0x11389, kLetter},
    {0x1138B, 0x1138B, kLetter}, {0x1138E, 0x1138E, kLetter}, {0x11390, 0x113B5, kLetter}, {0x113B7, 0x113C0, kLetter},
    {0x113C2, 0x113C2, kLetter}, {0x113C5, 0x113C5, kLetter}, {0x113C7, 0x113CA, kLetter}, {0x113CC, 0x113D3, kLetter},
    {0x113D4, 0x113D5, kSymbol}, {0x113D7, 0x113D8, kSymbol}, {0x113E1, 0x113E2, kLetter}, {0x116D0, 0x116E3, kNumber},
    {0x11BC0, 0x11BE0, kLetter}, {0x11BE1, 0x11BE1, kSymbol}, {0x11BF0, 0x11BF9, kNumber}, {0x11F5A, 0x11F5A, kLetter},
    {0x13460, 0x143FA, kLetter}, {0x16100, 0x1612F, kLetter}, {0x16130, 0x16139, kNumber}, {0x16D40, 0x16D6C, kLetter},
    {0x16D6D, 0x16D6F, kSymbol}, {0x16D70, 0x16D79, kNumber}, {0x18CFF, 0x18CFF, kLetter}, {0x1CC00, 0x1CCEF, kSymbol},
    {0x1CCF0, 0x1CCF9, kNumber}, {0x1CD00, 0x1CEB3, kSymbol}, {0x1E5D0, 0x1E5F0, kLetter}, {0x1E5F1, 0x1E5FA, kNumber},
    {0x1E5FF, 0x1E5FF, kSymbol}, {0x1F8B2, 0x1F8BB, kSymbol}, {0x1F8C0, 0x1F8C1, kSymbol}, {0x1FA89, 0x1FA89, kSymbol},
    {0x1FA8F, 0x1FA8F, kSymbol}, {0x1FABE, 0x1FABE, kSymbol}, {0x1FAC6, 0x1FAC6, kSymbol}, {0x1FADC, 0x1FADC, kSymbol},
    {0x1FADF, 0x1FADF, kSymbol}, {0x1FAE9, 0x1FAE9, kSymbol}, {0x1FBCB, 0x1FBEF, kSymbol}, {0x2EBF0, 0x2EE5D, kLetter},
};

CharClass class_of_category(utf8proc_category_t category) {
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME) return kLetter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return kNumber;
  if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO) return kSymbol;
  return category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP ? kSpace : kOther;
}

CharClass plain_class(uint32_t code, utf8proc_category_t category) {
  if (code == '\r' || code == '\n') return kNewline;
  if ((code >= 0x09 && code <= 0x0D) || code == 0x85) return kSpace;
  return class_of_category(category);
}

CharClass newer_class(uint32_t code) {
  const Range* range = std::lower_bound(std::begin(kSinceUnicode15), std::end(kSinceUnicode15), code,
                                        [](const Range& a, uint32_t b) { return a.last < b; });
  return range != std::end(kSinceUnicode15) && range->first <= code ? range->kind : kOther;
}

CharClass class_of(uint32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const CharClass plain = category == UTF8PROC_CATEGORY_CN ? newer_class(code) : plain_class(code, category);
  const bool han = (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF);
  if (!han) return plain;
  return plain == kLetter ? kHanLetter : plain == kSymbol ? kHanSymbol : kHanOther;
}

// Planes 4 to 13 are unassigned, 15 and 16 private: all kOther (a test looks at every code point).
bool plane_has_classes(uint32_t code) { return code < 0x40000 || (code >= 0xE0000 && code < 0xF0000); }

}  // namespace

CharClasses::CharClasses() : blocks_(kCodePoints / 64) {
  std::map<std::array<uint8_t, 64>, uint16_t> rows;
  for (uint32_t block = 0; block < kCodePoints / 64; ++block) {
    std::array<uint8_t, 64> row{};
    if (plane_has_classes(block * 64)) {
      for (uint32_t i = 0; i < 64; ++i) row[i] = class_of(block * 64 + i);
    }
    if (block > 0 && std::equal(row.begin(), row.end(), &classes_[blocks_[block - 1] * size_t{64}])) {
      blocks_[block] = blocks_[block - 1];
      continue;
    }
    const auto [place, added] = rows.emplace(row, static_cast<uint16_t>(rows.size()));
    if (added) classes_.insert(classes_.end(), row.begin(), row.end());
    blocks_[block] = place->second;
  }
}

}  // namespace deepinfer
