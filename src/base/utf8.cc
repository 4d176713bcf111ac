#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace deepinfer {
namespace {

struct Decoded {
  uint32_t code_point = kReplacementChar;
  size_t length = 1;  // bytes consumed
  bool valid = false;
  bool cut = false;  // valid so far, but the text ended
};

struct LeadByte {
  int length;               // of the whole sequence, 0 = never a lead byte
  unsigned char low, high;  // range of the second byte (Unicode 15, table 3-7)
};

LeadByte lead_byte(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const LeadByte lead = lead_byte(byte(at));
  if (lead.length == 1) return {byte(at), 1, true, false};
  if (lead.length == 0) return {};
  uint32_t code = byte(at) & (0xFFu >> (lead.length + 1));
  for (int i = 1; i < lead.length; ++i) {
    const size_t next = at + static_cast<size_t>(i);
    if (next >= text.size()) return {kReplacementChar, static_cast<size_t>(i), false, true};
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte(next) < low || byte(next) > high) return {kReplacementChar, static_cast<size_t>(i), false, false};
    code = (code << 6) | (byte(next) & 0x3Fu);
  }
  return {code, static_cast<size_t>(lead.length), true, false};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    while (at + 8 <= text.size() && (std::memcpy(&word, text.data() + at, 8), (word & 0x8080808080808080ull) == 0)) at += 8;
    if (at >= text.size()) return true;
    const auto lead = static_cast<unsigned char>(text[at]);
    const bool followed = at + 1 < text.size() && (static_cast<unsigned char>(text[at + 1]) & 0xC0) == 0x80;
    if (lead < 0x80 || (lead >= 0xC2 && lead < 0xE0 && followed)) {  // the common cases without the table
      at += lead < 0x80 ? 1 : 2;
      continue;
    }
    const Decoded decoded = decode(text, at);
    if (!decoded.valid) return false;
    at += decoded.length;
  }
  return true;
}

uint32_t next_code_point(std::string_view text, size_t& at) {
  const Decoded decoded = decode(text, at);
  at += decoded.length;
  return decoded.code_point;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t at = text.size() - back;
    const Decoded decoded = decode(text, at);
    if (decoded.cut && decoded.length == back) return back;
  }
  return 0;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Decoded decoded = decode(text, at);
    if (decoded.valid) {
      out.append(text.substr(at, decoded.length));
    } else {
      append_utf8(out, kReplacementChar);
    }
    at += decoded.length;
  }
  return out;
}

}  // namespace deepinfer
