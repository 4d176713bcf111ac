// api/responses/request.h - an OpenAI Responses body to a checked request.
//
// What goes to the engine is the same request the Chat wire gives; beside it stands what the answer repeats and how names
// of tools are split again.
// In profile `open`, `store`, `previous_response_id`, `background` and `metadata` mean something: the items of an earlier
// response stand in front of the input (`history`). In profile `official` they are ignored, as the recipe does.
// Promise: any bytes give a request or an Error whose message is the one clients of the official service know.
// Threads: pure functions.
//
//   DI_TRY(ResponsesRequest request, parse_responses_request(body, options, [&](const std::string& id) {
//     const auto stored = store.find(tenant, id, now);
//     return stored ? stored->items : Json();
//   }));
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "api/chat/request.h"
#include "api/responses/tools.h"

namespace deepinfer {

// Fields a response repeats as they were requested.
struct ResponsesEcho {
  Json instructions, max_output_tokens, temperature = Json::number("1.0"), top_p = Json::number("1.0"), top_logprobs = 0, user;
  Json effort, summary;
  Json format, tool_choice = "auto", tools = Json::array();
  Json parallel_tool_calls = true, max_tool_calls;
  // `open` only.
  bool background = false, store = false;
  Json previous_response_id, metadata = Json::object();

  // The fields the goldens record of it.
  Json summary_form() const;
};

struct ResponsesRequest {
  ChatRequest chat;
  ResponsesEcho echo;
  NamespaceNames namespaces;
  bool has_apply_patch = false;
  bool stream = false;
  // `open` only.
  bool store = false, background = false;
  Json input = Json::array();  // the body's own input as items
  Json items = Json::array();  // the same behind the history: what a later response continues from
};

// The items of a stored response (input and output), or null when there is none.
using ResponsesHistory = std::function<Json(const std::string& response_id)>;

Result<ResponsesRequest> parse_responses_request(std::string_view body, const ApiOptions& options,
                                                 const ResponsesHistory& history = nullptr);

}  // namespace deepinfer
