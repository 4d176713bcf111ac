// net/compression.h - bodies that came compressed.
//
// Promise: the result is at most `limit` bytes, whatever the input claims; more is kTooLarge, damage is kCorrupt, an unknown
// coding is kUnsupported.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

// `coding` as in Content-Encoding: "", "identity", "gzip", "x-gzip", "deflate", "zstd".
Result<std::string> decoded_body(std::string_view coding, std::string body, size_t limit);

}  // namespace deepinfer
