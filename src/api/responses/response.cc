#include "api/responses/response.h"

#include <fmt/format.h>

#include "api/chat/response.h"
#include "api/token_log.h"

namespace deepinfer {

namespace {

Json object(std::vector<Json::Member> members) { return Json::object(std::move(members)); }

Json usage_json(const AnswerUsage& usage) {
  Json out = object({{"input_tokens", usage.prompt_tokens},
                     {"input_tokens_details", object({{"cached_tokens", usage.cached_tokens}})},
                     {"output_tokens", usage.completion_tokens},
                     {"output_tokens_details", object({{"reasoning_tokens", usage.has_token_ids ? usage.reasoning_tokens : 0}})},
                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens}});
  if (!usage.cache_debug.is_null()) out.set("cache_debug", usage.cache_debug);
  return out;
}

bool is_cut(AnswerEnd end) { return end == AnswerEnd::kLength || end == AnswerEnd::kContentFilter; }

Json incomplete_details(AnswerEnd end) {
  if (!is_cut(end)) return nullptr;
  return object({{"reason", end == AnswerEnd::kLength ? "max_output_tokens" : "content_filter"}});
}

}  // namespace

Json ResponsesAnswerWriter::envelope(const char* status, Json completed, Json incomplete, Json output, Json usage) const {
  const ResponsesEcho& echo = info_.echo;
  return object({{"id", info_.id},
                 {"object", "response"},
                 {"created_at", info_.created},
                 {"status", status},
                 {"background", echo.background},
                 {"completed_at", std::move(completed)},
                 {"content_filters", nullptr},
                 {"error", nullptr},
                 {"frequency_penalty", Json::number("0.0")},
                 {"incomplete_details", std::move(incomplete)},
                 {"instructions", echo.instructions},
                 {"max_output_tokens", echo.max_output_tokens},
                 {"max_tool_calls", echo.max_tool_calls},
                 {"model", info_.model},
                 {"moderation", nullptr},
                 {"output", std::move(output)},
                 {"parallel_tool_calls", echo.parallel_tool_calls},
                 {"presence_penalty", Json::number("0.0")},
                 {"previous_response_id", echo.previous_response_id},
                 {"prompt_cache_key", nullptr},
                 {"prompt_cache_retention", nullptr},
                 {"reasoning", object({{"effort", echo.effort}, {"summary", echo.summary}})},
                 {"safety_identifier", nullptr},
                 {"service_tier", "default"},
                 {"store", echo.store},
                 {"temperature", echo.temperature},
                 {"text", object({{"format", echo.format}, {"verbosity", nullptr}})},
                 {"tool_choice", echo.tool_choice},
                 {"tools", echo.tools},
                 {"top_logprobs", echo.top_logprobs},
                 {"top_p", echo.top_p},
                 {"truncation", "disabled"},
                 {"usage", std::move(usage)},
                 {"user", echo.user},
                 {"metadata", echo.metadata}});
}

Json ResponsesAnswerWriter::snapshot(const char* status) const { return envelope(status, nullptr, nullptr, output(), nullptr); }

Json ResponsesAnswerWriter::failed(const std::string& code, const std::string& message) const {
  Json response = given_up("failed");
  response.set("error", object({{"code", code}, {"message", message}}));
  return response;
}

// The open item is as long as it will ever be.
Json ResponsesAnswerWriter::given_up(const char* status) const {
  Json items = Json::array();
  for (Item item : items_) {
    if (item.status == "in_progress") item.status = "incomplete";
    items.push_back(item_json(item));
  }
  return envelope(status, nullptr, nullptr, std::move(items), nullptr);
}

void ResponsesAnswerWriter::append_failure(const std::string& code, const std::string& message, std::string& out) {
  append_end("response.failed", failed(code, message), code, message, out);
}

void ResponsesAnswerWriter::append_cancelled(std::string& out) {
  append_end("response.cancelled", cancelled(), "cancelled", "the response was cancelled", out);
}

void ResponsesAnswerWriter::append_end(const char* name, Json response, const std::string& code, const std::string& message,
                                       std::string& out) {
  events_.clear();
  close("incomplete", events_);
  emit(name, {{"response", std::move(response)}}, events_);
  // The object "error" makes the SDK raise; the fields beside it are those of the documented event.
  emit("error",
       {{"code", code},
        {"message", message},
        {"param", nullptr},
        {"error", object({{"message", message}, {"type", code}, {"param", nullptr}, {"code", code}})}},
       events_);
  for (const NamedEvent& named : events_) append_sse_event(named, out);
}

Json ResponsesAnswerWriter::output() const {
  Json out = Json::array();
  for (const Item& item : items_) out.push_back(item_json(item));
  return out;
}

Json ResponsesAnswerWriter::response(const OutputStream& stream) const {
  return envelope(is_cut(end_) ? "incomplete" : "completed", completed_, incomplete_details(end_), output(),
                  usage_json(stream.usage()));
}

Json ResponsesAnswerWriter::part_json(const Item& item) {
  if (item.kind == Kind::kReasoning) return object({{"type", "reasoning_text"}, {"text", item.text}});
  return object({{"type", "output_text"}, {"annotations", Json::array()}, {"logprobs", item.log}, {"text", item.text}});
}

Json ResponsesAnswerWriter::item_json(const Item& item) const {
  Json parts = Json::array();
  const bool is_new = item.status == "in_progress";
  switch (item.kind) {
    case Kind::kReasoning:
      if (!is_new) parts.push_back(part_json(item));
      return object({{"type", "reasoning"},
                     {"id", item.id},
                     {"status", item.status},
                     {"content", std::move(parts)},
                     {"summary", Json::array()},
                     {"encrypted_content", fmt::format("{}-{}", info_.id, item.id.substr(item.id.rfind('_') + 1))}});
    case Kind::kMessage:
      if (!is_new) parts.push_back(part_json(item));
      return object({{"type", "message"},
                     {"id", item.id},
                     {"status", item.status},
                     {"role", "assistant"},
                     {"phase", item.phase},
                     {"content", std::move(parts)}});
    case Kind::kFunction: {
      Json out = object(
          {{"type", "function_call"}, {"id", item.id}, {"status", item.status}, {"call_id", item.call_id}, {"name", item.name}});
      if (!item.space.empty()) out.set("namespace", item.space);
      out.set("arguments", is_new ? "" : item.text);
      return out;
    }
    case Kind::kCustom: break;
  }
  return object({{"type", "custom_tool_call"},
                 {"id", item.id},
                 {"status", item.status},
                 {"call_id", item.call_id},
                 {"name", item.name},
                 {"input", is_new ? "" : item.text}});
}

void ResponsesAnswerWriter::emit(const char* name, std::vector<Json::Member> members, Events& out) {
  members.insert(members.begin(), {"type", name});
  // The reference writes the text of a finished part behind the number.
  Json::Member last{"", nullptr};
  if (members.back().first == "text") {
    last = std::move(members.back());
    members.pop_back();
  }
  members.emplace_back("sequence_number", sequence_++);
  if (!last.first.empty()) members.push_back(std::move(last));
  out.push_back({name, object(std::move(members))});
}

void ResponsesAnswerWriter::event(const OutputEvent& event, const OutputStream& stream, Events& out) {
  switch (event.kind) {
    case OutputEvent::Kind::kStart: return start(out);
    case OutputEvent::Kind::kReasoning: return text_delta(Kind::kReasoning, event, out);
    case OutputEvent::Kind::kContent: return text_delta(Kind::kMessage, event, out);
    case OutputEvent::Kind::kToolBegin: return begin_call(event, out);
    case OutputEvent::Kind::kToolArguments: return arguments(event.text, out);
    case OutputEvent::Kind::kFinish: return finish(event, stream, out);
  }
}

void ResponsesAnswerWriter::start(Events& out) {
  emit("response.created", {{"response", snapshot("in_progress")}}, out);
  emit("response.in_progress", {{"response", snapshot("in_progress")}}, out);
}

void ResponsesAnswerWriter::open(Item item, Events& out) {
  constexpr const char* kPrefixes[] = {"rs", "msg", "fc", "ctc"};
  // A message that a call follows was no final answer.
  if (is_open_ && items_.back().kind == Kind::kMessage && item.kind >= Kind::kFunction) items_.back().phase = "commentary";
  close("completed", out);
  item.id = fmt::format("{}_{}_{}", kPrefixes[static_cast<size_t>(item.kind)], info_.id, items_.size());
  items_.push_back(std::move(item));
  is_open_ = true;
  emit("response.output_item.added", {{"item", item_json(items_.back())}, {"output_index", place()}}, out);
}

void ResponsesAnswerWriter::text_delta(Kind kind, const OutputEvent& event, Events& out) {
  const bool is_reasoning = kind == Kind::kReasoning;
  if (!is_open_ || items_.back().kind != kind) {
    if (is_reasoning && event.text.empty()) return;
    Item item;
    item.kind = kind;
    open(std::move(item), out);
    emit("response.content_part.added",
         {{"content_index", 0}, {"item_id", items_.back().id}, {"output_index", place()}, {"part", part_json(items_.back())}},
         out);
  }
  Item& item = items_.back();
  item.text += event.text;
  std::vector<Json::Member> members{{"content_index", 0}, {"delta", event.text}, {"item_id", item.id}};
  if (!is_reasoning) {
    Json log = Json::array();
    for (const LoggedToken& token : event.logged) log.push_back(token_log_json(token));
    for (const Json& token : log.items()) item.log.push_back(token);
    members.emplace_back("logprobs", std::move(log));
  }
  members.emplace_back("output_index", place());
  emit(is_reasoning ? "response.reasoning_text.delta" : "response.output_text.delta", std::move(members), out);
}

void ResponsesAnswerWriter::begin_call(const OutputEvent& event, Events& out) {
  Item item;
  item.kind = info_.has_apply_patch && event.text == "apply_patch" ? Kind::kCustom : Kind::kFunction;
  const std::string suffix = info_.call_suffix ? info_.call_suffix(event.tool_index) : tool_call_suffix(0, event.tool_index);
  item.call_id = fmt::format("call_{:02}_{}", event.tool_index, suffix);
  const auto split = info_.namespaces.find(event.text);
  item.name = split == info_.namespaces.end() ? event.text : split->second.second;
  if (split != info_.namespaces.end()) item.space = split->second.first;
  custom_ = CustomInput();
  open(std::move(item), out);
}

void ResponsesAnswerWriter::arguments(const std::string& text, Events& out) {
  if (!is_open_) return;
  Item& item = items_.back();
  if (item.kind == Kind::kCustom) return custom_delta(custom_.feed(text), out);
  item.text += text;
  emit("response.function_call_arguments.delta", {{"delta", text}, {"item_id", item.id}, {"output_index", place()}}, out);
}

void ResponsesAnswerWriter::custom_delta(std::string text, Events& out) {
  if (text.empty()) return;
  Item& item = items_.back();
  item.text += text;
  emit("response.custom_tool_call_input.delta", {{"delta", std::move(text)}, {"item_id", item.id}, {"output_index", place()}},
       out);
}

void ResponsesAnswerWriter::close(const char* status, Events& out) {
  if (!is_open_) return;
  if (items_.back().kind == Kind::kCustom) custom_delta(custom_.end(), out);
  is_open_ = false;
  Item& item = items_.back();
  item.status = status;
  const Json index = place();
  switch (item.kind) {
    case Kind::kReasoning:
      emit("response.reasoning_text.done",
           {{"content_index", 0}, {"item_id", item.id}, {"output_index", index}, {"text", item.text}}, out);
      break;
    case Kind::kMessage:
      emit("response.output_text.done",
           {{"content_index", 0}, {"item_id", item.id}, {"logprobs", item.log}, {"output_index", index}, {"text", item.text}},
           out);
      break;
    case Kind::kFunction:
      emit("response.function_call_arguments.done", {{"arguments", item.text}, {"item_id", item.id}, {"output_index", index}},
           out);
      break;
    case Kind::kCustom:
      emit("response.custom_tool_call_input.done", {{"input", item.text}, {"item_id", item.id}, {"output_index", index}}, out);
  }
  if (item.kind == Kind::kReasoning || item.kind == Kind::kMessage) {
    emit("response.content_part.done",
         {{"content_index", 0}, {"item_id", item.id}, {"output_index", index}, {"part", part_json(item)}}, out);
  }
  emit("response.output_item.done", {{"item", item_json(item)}, {"output_index", index}}, out);
}

void ResponsesAnswerWriter::finish(const OutputEvent& event, const OutputStream& stream, Events& out) {
  end_ = event.end;
  close(is_cut(end_) ? "incomplete" : "completed", out);
  completed_ = info_.now ? info_.now() : info_.created;
  emit(is_cut(end_) ? "response.incomplete" : "response.completed", {{"response", response(stream)}}, out);
}

void ResponsesAnswerWriter::append_sse(const OutputEvent& event, const OutputStream& stream, std::string& out) {
  const bool content = event.kind == OutputEvent::Kind::kContent, reasoning = event.kind == OutputEvent::Kind::kReasoning;
  const Kind kind = content ? Kind::kMessage : Kind::kReasoning;
  if ((content || reasoning) && is_open_ && items_.back().kind == kind && event.logged.empty()) {
    Item& item = items_.back();
    item.text += event.text;
    const char* name = content ? "response.output_text.delta" : "response.reasoning_text.delta";
    fmt::format_to(std::back_inserter(out), "event: {0}\ndata: {{\"type\":\"{0}\",\"content_index\":0,\"delta\":", name);
    append_json_string(out, event.text);
    fmt::format_to(std::back_inserter(out), ",\"item_id\":\"{}\",{}\"output_index\":{},\"sequence_number\":{}}}\n\n", item.id,
                   content ? "\"logprobs\":[]," : "", items_.size() - 1, sequence_++);
    return;
  }
  events_.clear();
  this->event(event, stream, events_);
  for (const NamedEvent& named : events_) append_sse_event(named, out);
}

}  // namespace deepinfer
