// api/token_log.h - log-probabilities of one token, as the Chat and Responses wires write them.
//
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "recipe/output_stream.h"

namespace deepinfer {

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}
Json token_log_json(const LoggedToken& token);

}  // namespace deepinfer
