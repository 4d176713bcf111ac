#include "net/compression.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

namespace deepinfer {
namespace {

std::string gzipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), 0);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstded(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), 0);
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(Compression, RoundTrips) {
  const std::string text(300'000, 'x');
  EXPECT_EQ(*decoded_body("gzip", gzipped(text), 1 << 20), text);
  EXPECT_EQ(*decoded_body("zstd", zstded(text), 1 << 20), text);
  EXPECT_EQ(*decoded_body("GZIP", gzipped(""), 1 << 20), "");
  EXPECT_EQ(*decoded_body("", text, 1 << 20), text);
  EXPECT_EQ(*decoded_body("gzip", gzipped("one ") + gzipped("two"), 1 << 20), "one two");
}

TEST(Compression, BombsStopAtTheLimit) {
  const std::string text(50 << 20, 0);
  EXPECT_EQ(decoded_body("gzip", gzipped(text), 1 << 20).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(decoded_body("zstd", zstded(text), 1 << 20).error().code, ErrorCode::kTooLarge);
}

TEST(Compression, DamageIsAnError) {
  const std::string good = gzipped("hello, hello, hello"), other = zstded("hello, hello, hello");
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(decoded_body("gzip", good.substr(0, cut), 1000)) << cut;
  for (size_t cut = 0; cut < other.size(); ++cut) EXPECT_FALSE(decoded_body("zstd", other.substr(0, cut), 1000)) << cut;
  EXPECT_EQ(decoded_body("br", good, 1000).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace deepinfer
