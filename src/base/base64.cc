#include "base/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace deepinfer {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t kNone = -1, kBlank = -2, kPadding = -3;

constexpr std::array<int8_t, 256> values_of_letters() {
  std::array<int8_t, 256> values{};
  values.fill(kNone);
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  for (const char blank : {'\n', '\r', ' ', '\t'}) values[static_cast<unsigned char>(blank)] = kBlank;
  values['='] = kPadding;
  return values;
}
constexpr std::array<int8_t, 256> kValues = values_of_letters();

}  // namespace

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decoded(std::string_view text, size_t max_bytes) {
  std::string out;
  out.reserve(std::min(text.size() / 4 * 3 + 3, max_bytes + 4));
  uint32_t bits = 0;
  int count = 0;
  bool padded = false;
  for (const char c : text) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kBlank) continue;
    if (value == kNone || (padded && value >= 0)) return std::nullopt;
    if (value == kPadding) {
      padded = true;
      continue;
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
    if (out.size() > max_bytes) return out;
  }
  if (count == 6) return std::nullopt;  // one letter alone holds no byte
  return out;
}

}  // namespace deepinfer
