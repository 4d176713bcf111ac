// lab/golden_streams.h - replays an engine's records through the output parser and a wire's writer, for the goldens.
//
// Threads: one.
#pragma once

#include <string>

#include "base/json.h"
#include "text/tokenizer.h"

namespace deepinfer {

// Empty when the case passes, else what differs.
std::string run_stream(const Json& golden, const Tokenizer& tokenizer);
// Every way to cut one text in two. These cases list no token counts: a record counts a quarter of its characters, at least
// one, as in the other stream cases.
std::string run_chat_two_way(const Json& golden, const Tokenizer& tokenizer);

}  // namespace deepinfer
