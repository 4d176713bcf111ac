// formats/message.h - names from a file, safe to put into a one-line message.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"

namespace deepinfer {

// The name in quotes, control characters escaped, cut after about 160 bytes.
inline std::string quoted(std::string_view name) {
  constexpr size_t kMost = 160;
  std::string out;
  std::string_view head = name.substr(0, kMost);
  head.remove_suffix(incomplete_utf8_suffix(head));
  append_json_string(out, to_valid_utf8(head));
  if (name.size() > kMost) out += "...";
  return out;
}

}  // namespace deepinfer
