#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace deepinfer {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> code_point{};
  std::array<int16_t, 0x180> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    const uint16_t code = itself ? static_cast<uint16_t>(b) : next++;
    alphabet.code_point[static_cast<size_t>(b)] = code;
    alphabet.byte[code] = static_cast<int16_t>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

// Every character of the alphabet takes one or two bytes of UTF-8, so the bytes never need more room than the spelling.
bool append_spelled_bytes(std::string& out, std::string_view spelling) {
  const size_t before = out.size();
  out.resize(before + spelling.size());
  char* to = out.data() + before;
  const auto* at = reinterpret_cast<const unsigned char*>(spelling.data());
  const unsigned char* const end = at + spelling.size();
  while (at < end) {
    uint32_t code = *at++;
    if (code >= 0x80) {  // U+0080 to U+017F start with C2 to C5
      if (code < 0xC2 || code > 0xC5 || at == end || (*at & 0xC0) != 0x80) return out.resize(before), false;
      code = (code & 0x1F) << 6 | (*at++ & 0x3Fu);
    }
    const int16_t byte = kAlphabet.byte[code];
    if (byte < 0) return out.resize(before), false;
    *to++ = static_cast<char>(byte);
  }
  out.resize(static_cast<size_t>(to - out.data()));
  return true;
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, kAlphabet.code_point[static_cast<unsigned char>(c)]);
  return out;
}

}  // namespace deepinfer
