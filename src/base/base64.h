// base/base64.h - bytes as letters (RFC 4648, the usual alphabet, padded).
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

std::string base64(std::string_view bytes);
// Line breaks, blanks and missing padding are fine, the URL-safe alphabet is not. Nothing: not base64. Stops early once more than
// `max_bytes` came out.
std::optional<std::string> base64_decoded(std::string_view text, size_t max_bytes = static_cast<size_t>(-1) / 2);

}  // namespace deepinfer
