// A request body: the checked request or an error of one line; what is accepted can be written and read again, and rendered
// to a prompt.
#include "api/json_body.h"

#include <cstdint>

#include "api/chat/request.h"
#include "api/completions/request.h"
#include "api/messages/request.h"
#include "api/multipart.h"
#include "api/responses/request.h"
#include "recipe/render.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  if (const Result<Json> json = parse_json_body(body)) {
    const Result<Json> again = Json::parse(json->dump());
    DI_CHECK(again && *again == *json);
  }
  ApiOptions options;
  for (const Profile profile : {Profile::kOpen, Profile::kOfficial}) {
    options.profile = profile;
    if (const auto request = parse_chat_request(body, options)) (void)render_prompt(request->conversation).text();
    if (const auto request = parse_messages_request(body, options)) (void)render_prompt(request->conversation).text();
    if (const auto request = parse_responses_request(body, options)) (void)render_prompt(request->chat.conversation).text();
  }
  (void)parse_completion_request(body, options);
  (void)parse_form("multipart/form-data; boundary=x", body);
  return 0;
}
