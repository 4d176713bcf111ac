#include "server/response_routes.h"

#include <fmt/format.h>

#include "api/responses/input_items.h"

namespace deepinfer {

namespace {

bool asks_for_stream(const HttpRequest& request) {
  return ("&" + request.query + "&").find("&stream=true&") != std::string::npos;
}

Result<Json> kept_response(ServerContext& context, const Call& call) {
  const std::string& id = call.params[0];
  const int64_t now_us = context.clock.now_us();
  if (call.route->id == RouteId::kDeleteResponse) return context.responses->remove(call.key, id, now_us);
  if (call.route->id == RouteId::kCancelResponse) return context.responses->cancel(call.key, id, now_us);
  const auto stored = context.responses->find(call.key, id, now_us);
  if (!stored) return not_found(fmt::format("Response with id '{}' not found.", id.substr(0, 200)));
  if (call.route->id == RouteId::kInputItems) return input_item_list(id, stored->input, call.request().query);
  if (asks_for_stream(call.request())) {
    return invalid_argument("a kept response is not streamed again: retrieve it without stream until its status is completed");
  }
  return stored->response;
}

}  // namespace

void answer_kept_response(ServerContext& context, Call& call) {
  const Result<Json> answer = kept_response(context, call);
  answer ? call.respond_json(200, *answer) : call.fail(answer.error());
}

}  // namespace deepinfer
