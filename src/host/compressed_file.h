// host/compressed_file.h - whole files, `.zst` ones decompressed on the way.
//
// Promise: an Error names the file and the fault; a file that would grow beyond kMaxUnpackedBytes is an Error.
//
//   DI_TRY(std::string text, read_maybe_compressed("cases.jsonl.zst"));
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

inline constexpr size_t kMaxUnpackedBytes = size_t{2} << 30;

bool is_compressed_name(std::string_view path);
Result<std::string> read_maybe_compressed(const std::string& path);
Result<std::string> decompress(std::string_view bytes, const std::string& path);

}  // namespace deepinfer
