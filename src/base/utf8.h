// base/utf8.h - UTF-8 as the Unicode standard defines it: no overlong forms, no surrogates, at most U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

inline constexpr uint32_t kReplacementChar = 0xFFFD;

bool is_valid_utf8(std::string_view text);

// Reads one code point at `text[at]` and moves `at` past it. An invalid sequence yields kReplacementChar and moves past
// its longest valid prefix (at least one byte), as the Unicode standard recommends. REQUIRES: at < text.size().
uint32_t next_code_point(std::string_view text, size_t& at);

void append_utf8(std::string& out, uint32_t code_point);

// How many bytes at the end of `text` are a cut-off but so far valid sequence (0..3).
size_t incomplete_utf8_suffix(std::string_view text);

// Every invalid sequence replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace deepinfer
