// grammar/schema_formats.h - the formats of JSON Schema as languages of texts.
//
// Threads: pure but for the arena.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/regex.h"

namespace deepinfer {

// Nothing for a format that is not known.
std::optional<Rx> format_text(RegexArena& arena, std::string_view format);

// A format that JSON Schema defines, known here or not.
bool is_standard_format(std::string_view format);

}  // namespace deepinfer
