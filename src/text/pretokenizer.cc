#include "text/pretokenizer.h"

#include <immintrin.h>

#include <bit>

namespace deepinfer {
namespace {

bool is_newline(uint8_t byte) { return byte == '\n' || byte == '\r'; }
bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Most words end within 16 bytes: one compare finds where, instead of one mispredicted branch a word.
const uint8_t* skip_ascii_letters(const uint8_t* at, const uint8_t* end) {
  while (end - at >= 16) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i from_a = _mm_sub_epi8(_mm_or_si128(text, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
    const __m128i letters = _mm_cmpeq_epi8(_mm_min_epu8(from_a, _mm_set1_epi8(25)), from_a);
    const auto others = static_cast<uint32_t>(~_mm_movemask_epi8(letters)) & 0xFFFFu;
    if (others != 0) return at + std::countr_zero(others);
    at += 16;
  }
  while (at < end && static_cast<uint8_t>((*at | 0x20) - 'a') < 26) ++at;
  return at;
}

}  // namespace

Pretokenizer::Pretokenizer() {
  for (uint32_t code = 0; code < 128; ++code) ascii_[code] = classes_.of(code);
}

inline Pretokenizer::Char Pretokenizer::char_at(const uint8_t* at, const uint8_t* end) const {
  if (*at < 0x80) return {ascii_[*at], 1};
  return wide_char_at(at, end);
}

inline Pretokenizer::Char Pretokenizer::wide_char_at(const uint8_t* at, const uint8_t* end) const {
  const uint32_t lead = *at;
  const auto left = end - at;
  if (lead >= 0xE0 && lead < 0xF0 && left >= 3 && is_continuation(at[1]) && is_continuation(at[2])) {
    const uint32_t block = (lead & 0xF) << 6 | (at[1] & 0x3Fu);
    const bool valid = block >= 0x20 && (block < 0x360 || block >= 0x380);  // no overlong form, no surrogate
    if (valid) return {classes_.in_block(block, at[2] & 0x3F), 3};
  } else if (lead >= 0xC2 && lead < 0xE0 && left >= 2 && is_continuation(at[1])) {
    return {classes_.in_block(lead & 0x1F, at[1] & 0x3F), 2};
  } else if (lead >= 0xF0 && lead < 0xF5 && left >= 4 && is_continuation(at[1]) && is_continuation(at[2]) &&
             is_continuation(at[3])) {
    const uint32_t block = (lead & 0x7) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
    const bool valid = block >= 0x400 && block < 0x4400;
    if (valid) return {classes_.in_block(block, at[3] & 0x3F), 4};
  }
  return {kOther, 1};
}

inline const uint8_t* Pretokenizer::skip(CharClass kind, const uint8_t* at, const uint8_t* end) const {
  while (at < end) {
    const Char next = char_at(at, end);
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

inline const uint8_t* Pretokenizer::skip_letters(const uint8_t* at, const uint8_t* end) const {
  while (true) {
    at = skip_ascii_letters(at, end);
    if (at == end || *at < 0x80) return at;
    const Char next = wide_char_at(at, end);
    if (next.kind != kLetter) return at;
    at += next.length;
  }
}

const uint8_t* Pretokenizer::number_end(const uint8_t* at, const uint8_t* end) const {
  for (int i = 0; i < 3 && at < end; ++i) {
    const Char next = char_at(at, end);
    if (next.kind != kNumber) break;
    at += next.length;
  }
  return at;
}

// ` ?[\p{P}\p{S}]+[\r\n]*` from its first symbol.
const uint8_t* Pretokenizer::symbols_end(const uint8_t* at, const uint8_t* end) const {
  at = skip(kSymbol, at, end);
  while (at < end && is_newline(*at)) ++at;
  return at;
}

// A run of white space: through its last line break, else all of it before the segment's end, else all but the last
// character, which belongs to what follows.
const uint8_t* Pretokenizer::space_end(const uint8_t* at, const uint8_t* end) const {
  const uint8_t* after_newline = nullptr;
  const uint8_t* last = at;
  const uint8_t* run = at;
  while (run < end) {
    const Char next = char_at(run, end);
    if (next.kind != kSpace && next.kind != kNewline) break;
    last = run;
    run += next.length;
    if (next.kind == kNewline) after_newline = run;
  }
  if (after_newline) return after_newline;
  const bool segment_ends = run == end || kind_at(run, end) >= kNumber;
  return segment_ends || last == at ? run : last;
}

// Characters no alternative matches, up to one that begins a match.
const uint8_t* Pretokenizer::other_end(const uint8_t* at, const uint8_t* end) const {
  const CharClass kind = kind_at(at, end);
  const CharClass letter = kind == kOther ? kLetter : kHanLetter;
  const uint8_t* run = at;
  while (run < end) {
    const Char next = char_at(run, end);
    if (next.kind != kind) break;
    const uint8_t* after = run + next.length;
    if (after < end && kind_at(after, end) == letter) return run == at ? skip(letter, after, end) : run;
    run = after;
  }
  return run;
}

bool Pretokenizer::blank(const uint8_t* at, const uint8_t* end) const {
  for (Char next; at < end; at += next.length) {
    next = char_at(at, end);
    if (next.kind != kSpace && next.kind != kNewline) return false;
  }
  return true;
}

const uint8_t* Pretokenizer::next_piece(const uint8_t* at, const uint8_t* end) const {
  const Char first = char_at(at, end);
  const uint8_t* next = at + first.length;
  switch (first.kind) {
    case kLetter: return skip_letters(next, end);
    case kHanLetter: return skip(kHanLetter, next, end);
    case kHanSymbol: return skip(kHanSymbol, next, end);
    case kNumber: return number_end(at, end);
    case kSymbol: {
      if (*at < 0x80) {
        const uint8_t* word = skip_ascii_letters(next, end);
        if (word > next) return word;
      }
      return symbols_end(at, end);
    }
    case kSpace: {
      if (next < end) {
        const CharClass kind = kind_at(next, end);
        if (kind == kLetter) return skip_letters(next, end);
        if (kind == kSymbol && *at == ' ') return symbols_end(next, end);
      }
      return space_end(at, end);
    }
    case kNewline: return space_end(at, end);
    case kOther:
    case kHanOther: return other_end(at, end);
  }
  return next;
}

}  // namespace deepinfer
