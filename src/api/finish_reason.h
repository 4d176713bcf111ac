// api/finish_reason.h - words that several wires share: how an answer ended, bytes that are no text, what was drafted of it.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "recipe/output_stream.h"

namespace deepinfer {

// "stop", "length", "tool_calls", "content_filter".
const char* finish_reason_name(AnswerEnd end);
// Bytes that are no whole character are written as \xNN.
std::string visible_bytes(std::string_view bytes);
// Nothing when the usage does not tell.
void add_draft_usage(const AnswerUsage& usage, Json& details);

}  // namespace deepinfer
