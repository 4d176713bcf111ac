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
  for (const std::string_view word : {"image", "json_schema", "json_object", "regex", "grammar", "\"tools\"", "\\u"}) {
    if (body.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// What names a picture on each wire, as JSON writes it; letters of ASCII have no need to be escaped.
bool may_hold_pictures(std::string_view body) {
  for (const std::string_view word :
       {"image_url", "input_image", "\"image\"", "file_data", "\\u004", "\\u005", "\\u006", "\\u007"}) {
    if (body.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool is_quick(const HttpRequest& request) {
  return request.body.size() <= kSmallBody && request.headers.get("content-encoding").empty() && !may_take_long(request.body);
}

}  // namespace

void work_on_body(ServerContext& context, const CallPtr& call, std::function<Reply(const std::string& body)> work) {
  const auto refused = [call](int status, const Error& error) -> Reply {
    return [call, status, message = error.message] { call->fail(status, message); };
  };
  const auto answer = [call](const Reply& reply) {
    if (!call->exchange->is_open()) return;
    call->exchange->request().body = {};
    reply();
  };
  if (is_quick(call->request())) return answer(work(call->request().body));
  const size_t bytes = call->request().body.size();
  if (context.body_bytes_at_work > 0 && context.body_bytes_at_work + bytes > kMostAtWork)
    return call->fail(Error{ErrorCode::kUnavailable, "too many large bodies are being read: try again soon"});
  context.body_bytes_at_work += bytes;
  const auto finish = [&context, answer, bytes](Reply reply) {
    context.http->post([&context, reply = std::move(reply), answer, bytes] {
      context.body_bytes_at_work -= bytes;
      answer(reply);
    });
  };
  context.workers.add([&context, call, work = std::move(work), refused, finish] {
    int status = 0;
    Result<std::string> body = request_body(call->request(), context.body_limit(), status);
    if (!body) return finish(refused(status, body.error()));
    if (!may_hold_pictures(*body)) return finish(work(*body));
    // Read once more there: what waits is counted as it came, and one that was compressed may be a thousand times as large.
    context.picture_workers.add([&context, call, work, refused, finish] {
      int again = 0;
      const Result<std::string> body = request_body(call->request(), context.body_limit(), again);
      finish(body ? work(*body) : refused(again, body.error()));
    });
  });
}

}  // namespace deepinfer
