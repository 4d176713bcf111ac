#include "server/body_work.h"

#include <string_view>

namespace deepinfer {

namespace {

constexpr size_t kSmallBody = 32 << 10;
// Eight bodies of the largest size that is read by default.
constexpr size_t kMostAtWork = size_t{384} << 20;

// Every part with a picture has "image" in its type or its data URL, every format to compile its name, every tool that may have
// to be held to its schema its list's; only an escape could spell them otherwise.
bool may_take_long(std::string_view body) {
  for (const std::string_view word : {"image", "json_schema", "json_object", "regex", "\"tools\"", "\\u"}) {
    if (body.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool is_quick(const HttpRequest& request) {
  return request.body.size() <= kSmallBody && request.headers.get("content-encoding").empty() && !may_take_long(request.body);
}

}  // namespace

void work_on_body(ServerContext& context, const CallPtr& call, std::function<Reply(const std::string& body)> work) {
  const auto prepare = [&context, call, work = std::move(work)]() -> Reply {
    int status = 0;
    const Result<std::string> body = request_body(call->request(), context.body_limit(), status);
    if (body) return work(*body);
    return [call, status, error = body.error()] { call->fail(status, error.message); };
  };
  const auto answer = [call](const Reply& reply) {
    if (!call->exchange->is_open()) return;
    call->exchange->request().body = {};
    reply();
  };
  if (is_quick(call->request())) return answer(prepare());
  const size_t bytes = call->request().body.size();
  if (context.body_bytes_at_work > 0 && context.body_bytes_at_work + bytes > kMostAtWork)
    return call->fail(Error{ErrorCode::kUnavailable, "too many large bodies are being read: try again soon"});
  context.body_bytes_at_work += bytes;
  context.workers.add([&context, prepare, answer, bytes] {
    context.http->post([&context, reply = prepare(), answer, bytes] {
      context.body_bytes_at_work -= bytes;
      answer(reply);
    });
  });
}

}  // namespace deepinfer
