// api/json_body.h - a request body to Json, with the error texts clients of the official service know.
//
// Promise: the same bodies are accepted and refused as by the reference: at most 127 levels, numbers within a double, no
// comments, no byte order mark; a repeated key keeps its first place and its last value. Messages read
// "invalid JSON request: REASON at line L column C".
// Threads: pure functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

Result<Json> parse_json_body(std::string_view body);

}  // namespace deepinfer
