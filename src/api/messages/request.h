// api/messages/request.h - an Anthropic Messages body to a checked request.
//
// What comes out is the same request the Chat wire gives, so everything behind it is shared; count_tokens takes the same
// body and needs its prompt only.
// Promise: any bytes give a request or an Error whose message is the one clients of the official service know.
// Threads: pure functions.
//
//   DI_TRY(ChatRequest request, parse_messages_request(body, options));
//   MessagesAnswerWriter writer({id, request.model, request.conversation.thinking});   // messages/response.h
#pragma once

#include <string_view>

#include "api/chat/request.h"

namespace deepinfer {

// The message of the one error that clients act upon by its details (messages_error_body adds them): told so, the SDK's tool
// runner sends whole histories instead of continuing a conversation the server keeps.
inline constexpr std::string_view kThreadsNotKept = "thread: this server keeps no conversations; send the whole history";

Result<ChatRequest> parse_messages_request(std::string_view body, const ApiOptions& options);

}  // namespace deepinfer
