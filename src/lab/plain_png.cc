#include "lab/plain_png.h"

#include <algorithm>
#include <string_view>

namespace deepinfer {

namespace {

void append_be(uint32_t value, std::string& out) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320 : crc >> 1;
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

void append_chunk(std::string_view kind, std::string_view data, std::string& out) {
  append_be(static_cast<uint32_t>(data.size()), out);
  std::string body(kind);
  body += data;
  out += body;
  append_be(crc32(body), out);
}

}  // namespace

std::string plain_png(uint32_t width, uint32_t height, uint8_t level) {
  std::string header;
  append_be(width, header);
  append_be(height, header);
  header += std::string("\x08\x00\x00\x00\x00", 5);  // 8-bit grey
  std::string raw;
  for (uint32_t y = 0; y < height; ++y) {
    raw += '\0';
    raw.append(width, static_cast<char>(level));
  }
  std::string stream("\x78\x01", 2);
  constexpr size_t kBlock = 65535;
  for (size_t at = 0; at < raw.size(); at += kBlock) {
    const size_t size = std::min(kBlock, raw.size() - at);
    stream += static_cast<char>(at + size == raw.size());
    for (const size_t half : {size, ~size}) {
      stream += static_cast<char>(half & 0xFF);
      stream += static_cast<char>(half >> 8 & 0xFF);
    }
    stream += raw.substr(at, size);
  }
  append_be(adler32(raw), stream);
  std::string out("\x89PNG\r\n\x1a\n", 8);
  append_chunk("IHDR", header, out);
  append_chunk("IDAT", stream, out);
  append_chunk("IEND", "", out);
  return out;
}

}  // namespace deepinfer
