#include "server/answers.h"

#include <algorithm>

#include "api/messages/request.h"
#include "kvcache/tiers/retention.h"
#include "server/body_work.h"

namespace deepinfer {

namespace {

struct Wire {
  const char* id_prefix;
  Result<AnswerPlan> (*plan)(const WireCall& wire);
};

Wire wire_of(RouteId route) {
  switch (route) {
    case RouteId::kCompletion: return {"cmpl-", plan_completion};
    case RouteId::kMessages: return {"msg_", plan_messages};
    case RouteId::kCreateResponse: return {"resp_", plan_response};
    default: return {"chatcmpl-", plan_chat};
  }
}

// A member of the body on every wire. Hardly any body has it, so only those are parsed once more.
bool wants_cache_debug(const std::string& body) {
  if (body.find("\"cache_debug\"") == std::string::npos) return false;
  const Result<Json> json = Json::parse(body);
  return json && json->at("cache_debug").is_bool() && json->at("cache_debug").as_bool();
}

// A member of that name anywhere: inside a string its quotes would have backslashes.
bool has_cache_control(std::string_view body) {
  constexpr std::string_view kName = "\"cache_control\"";
  for (size_t at = body.find(kName); at != body.npos; at = body.find(kName, at)) {
    at = body.find_first_not_of(" \t\r\n", at + kName.size());
    if (at != body.npos && body[at] == ':') return true;
  }
  return false;
}

// How long pages of this request are kept, as its header or its key asks; unset without one.
Result<std::optional<RetentionClass>> wanted_retention(const Call& call) {
  const std::string_view name = call.request().headers.get("x-cache-class");
  if (name.empty()) return call.retention;
  if (const auto retention = retention_class_named(name)) return retention;
  return invalid_argument("x-cache-class is one of session, agent, chat, pinned");
}

// While a request is prepared nothing but the download of a picture is unavailable. That is the request's affair and not the
// server's, so the status says so; but it may pass later.
void fail_prepared(Call& call, const Error& error) {
  error.code == ErrorCode::kIo ? call.fail(400, error.message, true) : call.fail(error);
}

}  // namespace

void Answers::answer(const CallPtr& call) {
  const Wire wire = wire_of(call->route->id);
  const std::string id = context_.new_id(wire.id_prefix);
  const auto retention = wanted_retention(*call);
  if (!retention) return call->fail(retention.error());
  work_on_body(context_, call, [this, call, wire, id, retention = *retention](const std::string& body) -> Reply {
    auto plan = std::make_shared<Result<AnswerPlan>>(wire.plan({context_, body, id, call->request_id, call->key}));
    const bool cache_debug = wants_cache_debug(body);
    // What a client marks is kept as long as a chat, also where tools would make it an agent's.
    const bool marked = has_cache_control(body);
    return [this, call, plan, cache_debug, marked, retention] {
      if (!*plan) return fail_prepared(*call, plan->error());
      (*plan)->options.cache_debug = cache_debug;
      (*plan)->options.retention = retention || !marked ? retention : RetentionClass::kChat;
      (*plan)->options.deadline_us = context_.deadline_us(call->request());
      auto generation = std::make_shared<Generation>(context_, call, std::move(**plan));
      generations_.push_back(generation);
      generation->start();
    };
  });
}

void Answers::count_tokens(const CallPtr& call) {
  const bool is_messages = call->route->id == RouteId::kCountTokens;
  work_on_body(context_, call, [this, call, is_messages](const std::string& body) -> Reply {
    const WireCall wire{context_, body, "", call->request_id, call->key};
    const auto count = [&]() -> Result<int64_t> {
      DI_TRY(const ChatRequest request, is_messages ? parse_messages_request(body, context_.api) : read_response_chat(wire));
      return count_prompt_tokens(*context_.host, request.conversation);
    };
    return [call, is_messages, tokens = count()] {
      if (!tokens) return fail_prepared(*call, tokens.error());
      Json answer = Json::object({{"input_tokens", *tokens}});
      if (!is_messages) answer.set("object", "response.input_tokens");
      call->respond_json(200, answer);
    };
  });
}

void Answers::keep_alive(int64_t now_us) {
  std::erase_if(generations_, [&](const std::weak_ptr<Generation>& weak) {
    const auto generation = weak.lock();
    if (generation) generation->keep_alive(now_us);
    return !generation || generation->over();
  });
}

}  // namespace deepinfer
