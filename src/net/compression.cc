#include "net/compression.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>

#include "net/http.h"

namespace deepinfer {

namespace {

constexpr size_t kPiece = 64 << 10;

Error bomb(size_t limit) { return too_large(fmt::format("the body is longer than {} bytes when decompressed", limit)); }

Result<std::string> inflated(std::string_view body, size_t limit) {
  z_stream stream{};
  // 32: gzip or zlib by its header.
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return internal_error("zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  std::string out;
  std::array<char, kPiece> piece;
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = piece.size();
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(piece.data(), piece.size() - stream.avail_out);
    if (out.size() > limit) return bomb(limit);
    // Members may follow each other in a gzip file.
    if (status == Z_STREAM_END && stream.avail_in > 0) status = inflateReset(&stream);
  }
  if (status != Z_STREAM_END) return corrupt("the gzip body is damaged or cut off");
  return out;
}

Result<std::string> unzstd(std::string_view body, size_t limit) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context) return internal_error("zstd cannot start");
  // 8 MB, as RFC 9659 limits the window of HTTP; else a header of some bytes takes 2 GB.
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 23);
  ZSTD_inBuffer in{body.data(), body.size(), 0};
  std::string out;
  std::array<char, kPiece> piece;
  size_t left = 1;
  while (in.pos < in.size || left == 0) {
    ZSTD_outBuffer to{piece.data(), piece.size(), 0};
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left)) return corrupt(fmt::format("the zstd body is damaged: {}", ZSTD_getErrorName(left)));
    out.append(piece.data(), to.pos);
    if (out.size() > limit) return bomb(limit);
    if (in.pos == in.size && to.pos < to.size) break;
  }
  if (left != 0) return corrupt("the zstd body is cut off");
  return out;
}

}  // namespace

Result<std::string> decoded_body(std::string_view coding, std::string body, size_t limit) {
  if (coding.empty() || equal_ignoring_case(coding, "identity")) return body;
  if (equal_ignoring_case(coding, "gzip") || equal_ignoring_case(coding, "x-gzip") || equal_ignoring_case(coding, "deflate"))
    return inflated(body, limit);
  if (equal_ignoring_case(coding, "zstd")) return unzstd(body, limit);
  return unsupported(fmt::format("Content-Encoding '{}' is not spoken here; use gzip or zstd", coding.substr(0, 40)));
}

}  // namespace deepinfer
