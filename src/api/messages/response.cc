#include "api/messages/response.h"

#include <fmt/format.h>

#include "api/chat/response.h"
#include "api/messages/request.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

Json object(std::vector<Json::Member> members) { return Json::object(std::move(members)); }

const char* stop_reason(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStop: return "end_turn";
    case AnswerEnd::kStopString: return "stop_sequence";
    case AnswerEnd::kToolCalls: return "tool_use";
    case AnswerEnd::kLength: return "max_tokens";
    case AnswerEnd::kContentFilter: return "refusal";
  }
  return "end_turn";
}

Json usage_json(const AnswerUsage& usage, int64_t output_tokens) {
  Json out = object({{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                     {"cache_creation_input_tokens", 0},
                     {"cache_read_input_tokens", usage.cached_tokens},
                     {"output_tokens", output_tokens},
                     {"service_tier", "standard"}});
  if (!usage.cache_debug.is_null()) out.set("cache_debug", usage.cache_debug);
  return out;
}

}  // namespace

Json MessagesAnswerWriter::message(Json content, Json stop_reason, Json stop_sequence, Json usage) const {
  return object({{"id", info_.id},
                 {"type", "message"},
                 {"role", "assistant"},
                 {"model", info_.model},
                 {"content", std::move(content)},
                 {"stop_reason", std::move(stop_reason)},
                 {"stop_sequence", std::move(stop_sequence)},
                 {"usage", std::move(usage)}});
}

void MessagesAnswerWriter::event(const OutputEvent& event, const OutputStream& stream, std::vector<NamedEvent>& out) {
  switch (event.kind) {
    case OutputEvent::Kind::kStart:
      out.push_back(
          {"message_start", object({{"type", "message_start"},
                                    {"message", message(Json::array(), nullptr, nullptr, usage_json(stream.usage(), 0))}})});
      if (info_.thinking) open({Kind::kThinking, "", "", ""}, out);
      return;
    case OutputEvent::Kind::kReasoning: return delta(Kind::kThinking, event.text, out);
    case OutputEvent::Kind::kContent: return delta(Kind::kText, event.text, out);
    case OutputEvent::Kind::kToolBegin: {
      const std::string suffix = info_.call_suffix ? info_.call_suffix(event.tool_index) : tool_call_suffix(0, event.tool_index);
      return open({Kind::kToolUse, "", fmt::format("call_{:02}_{}", event.tool_index, suffix), event.text}, out);
    }
    case OutputEvent::Kind::kToolArguments: return delta(Kind::kToolUse, event.text, out);
    case OutputEvent::Kind::kFinish: return finish(event, stream, out);
  }
}

void MessagesAnswerWriter::delta(Kind kind, const std::string& text, std::vector<NamedEvent>& out) {
  if (!is_open_ || blocks_.back().kind != kind) open({kind, "", "", ""}, out);
  blocks_.back().text += text;
  constexpr const char* kTypes[] = {"thinking_delta", "text_delta", "input_json_delta"};
  constexpr const char* kKeys[] = {"thinking", "text", "partial_json"};
  const auto index = static_cast<size_t>(kind);
  out.push_back({"content_block_delta", object({{"type", "content_block_delta"},
                                                {"index", static_cast<uint64_t>(blocks_.size() - 1)},
                                                {"delta", object({{"type", kTypes[index]}, {kKeys[index], text}})}})});
}

void MessagesAnswerWriter::open(Block block, std::vector<NamedEvent>& out) {
  close(out);
  Json form;
  switch (block.kind) {
    case Kind::kThinking: form = object({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}); break;
    case Kind::kText: form = object({{"type", "text"}, {"text", ""}}); break;
    case Kind::kToolUse:
      form = object({{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", Json::object()}});
      break;
  }
  blocks_.push_back(std::move(block));
  is_open_ = true;
  out.push_back({"content_block_start", object({{"type", "content_block_start"},
                                                {"index", static_cast<uint64_t>(blocks_.size() - 1)},
                                                {"content_block", std::move(form)}})});
  if (blocks_.size() == 1) out.push_back({"ping", object({{"type", "ping"}})});
}

void MessagesAnswerWriter::close(std::vector<NamedEvent>& out) {
  if (!is_open_) return;
  is_open_ = false;
  const auto index = static_cast<uint64_t>(blocks_.size() - 1);
  if (blocks_.back().kind == Kind::kThinking) {
    out.push_back({"content_block_delta", object({{"type", "content_block_delta"},
                                                  {"index", index},
                                                  {"delta", object({{"type", "signature_delta"}, {"signature", info_.id}})}})});
  }
  out.push_back({"content_block_stop", object({{"type", "content_block_stop"}, {"index", index}})});
}

void MessagesAnswerWriter::finish(const OutputEvent& event, const OutputStream& stream, std::vector<NamedEvent>& out) {
  close(out);
  end_ = event.end;
  stop_string_ = event.text;
  const bool by_string = end_ == AnswerEnd::kStopString;
  out.push_back({"message_delta", object({{"type", "message_delta"},
                                          {"delta", object({{"stop_reason", stop_reason(end_)},
                                                            {"stop_sequence", by_string ? Json(stop_string_) : Json()}})},
                                          {"usage", usage_json(stream.usage(), stream.usage().completion_tokens)}})});
  out.push_back({"message_stop", object({{"type", "message_stop"}})});
}

void MessagesAnswerWriter::append_sse(const OutputEvent& event, const OutputStream& stream, std::string& out) {
  const bool content = event.kind == OutputEvent::Kind::kContent, reasoning = event.kind == OutputEvent::Kind::kReasoning;
  const Kind kind = content ? Kind::kText : Kind::kThinking;
  if ((content || reasoning) && is_open_ && blocks_.back().kind == kind) {
    blocks_.back().text += event.text;
    fmt::format_to(
        std::back_inserter(out),
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{},\"delta\":{{\"type\":\"{}\",\"{}\":",
        blocks_.size() - 1, content ? "text_delta" : "thinking_delta", content ? "text" : "thinking");
    append_json_string(out, event.text);
    out += "}}\n\n";
    return;
  }
  events_.clear();
  this->event(event, stream, events_);
  for (const NamedEvent& named : events_) append_sse_event(named, out);
}

Json MessagesAnswerWriter::response(const OutputStream& stream) const {
  Json content = Json::array();
  for (const Block& block : blocks_) {
    switch (block.kind) {
      case Kind::kThinking:
        content.push_back(object({{"type", "thinking"}, {"thinking", block.text}, {"signature", info_.id}}));
        break;
      case Kind::kText: content.push_back(object({{"type", "text"}, {"text", block.text}})); break;
      case Kind::kToolUse: {
        // Numbers and repeated keys in their normal form; what is no object was cut off or malformed.
        Result<Json> input = Json::parse(block.text);
        if (input) input = Json::parse(compact_json(*input));
        content.push_back(object({{"type", "tool_use"},
                                  {"id", block.id},
                                  {"name", block.name},
                                  {"input", input && input->is_object() ? *std::move(input) : Json::object()}}));
      }
    }
  }
  const bool by_string = end_ == AnswerEnd::kStopString;
  return message(std::move(content), stop_reason(end_), by_string ? Json(stop_string_) : Json(),
                 usage_json(stream.usage(), stream.usage().completion_tokens));
}

Json messages_error_body(int status, const std::string& message) {
  const char* type = "api_error";
  switch (status) {
    case 401: type = "authentication_error"; break;
    case 402: type = "billing_error"; break;
    case 403: type = "permission_error"; break;
    case 404: type = "not_found_error"; break;
    case 413: type = "request_too_large"; break;
    case 429: type = "rate_limit_error"; break;
    case 503:
    case 529: type = "overloaded_error"; break;
    case 504: type = "timeout_error"; break;
    default:
      if (status < 500) type = "invalid_request_error";
  }
  Json error = object({{"type", type}, {"message", message}});
  if (message == kThreadsNotKept) {
    error.set("details", object({{"error_code", "thread_unsupported_request"}, {"unsupported", Json::array({"thread"})}}));
  }
  return object({{"type", "error"}, {"error", std::move(error)}});
}

}  // namespace deepinfer
