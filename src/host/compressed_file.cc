#include "host/compressed_file.h"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>

#include "base/file.h"

namespace deepinfer {

bool is_compressed_name(std::string_view path) { return path.ends_with(".zst"); }

Result<std::string> decompress(std::string_view bytes, const std::string& path) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) return exhausted(fmt::format("{}: no memory to decompress", path));
  std::string out;
  ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
  size_t wanted = 1;
  while (in.pos < in.size) {
    if (out.size() >= kMaxUnpackedBytes)
      return too_large(fmt::format("{}: unpacks to more than {} bytes", path, kMaxUnpackedBytes));
    const size_t old = out.size();
    out.resize(old + ZSTD_DStreamOutSize());
    ZSTD_outBuffer target = {out.data() + old, out.size() - old, 0};
    wanted = ZSTD_decompressStream(stream.get(), &target, &in);
    if (ZSTD_isError(wanted)) return corrupt(fmt::format("{}: not valid zstd data: {}", path, ZSTD_getErrorName(wanted)));
    out.resize(old + target.pos);
    // A full output buffer with the input used up may still hide bytes in the stream.
    while (in.pos == in.size && wanted != 0 && target.pos == target.size) {
      const size_t more = out.size();
      out.resize(more + ZSTD_DStreamOutSize());
      target = {out.data() + more, out.size() - more, 0};
      wanted = ZSTD_decompressStream(stream.get(), &target, &in);
      if (ZSTD_isError(wanted)) return corrupt(fmt::format("{}: not valid zstd data: {}", path, ZSTD_getErrorName(wanted)));
      out.resize(more + target.pos);
    }
  }
  if (wanted != 0) return corrupt(fmt::format("{}: zstd data is cut off", path));
  return out;
}

Result<std::string> read_maybe_compressed(const std::string& path) {
  DI_TRY(std::string bytes, read_file(path));
  if (!is_compressed_name(path)) return bytes;
  return decompress(bytes, path);
}

}  // namespace deepinfer
