#include "api/chat/response.h"

#include <fmt/format.h>

#include "api/finish_reason.h"
#include "api/token_log.h"

namespace deepinfer {

namespace {

Json object(std::vector<Json::Member> members) { return Json::object(std::move(members)); }

Json list_of(Json item) {
  Json list = Json::array();
  list.push_back(std::move(item));
  return list;
}

}  // namespace

Json chat_usage(const AnswerUsage& usage, bool thinking) {
  Json out = object({{"prompt_tokens", usage.prompt_tokens},
                     {"completion_tokens", usage.completion_tokens},
                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                     {"prompt_tokens_details", object({{"cached_tokens", usage.cached_tokens}})}});
  Json details = Json::object();
  if (thinking && usage.has_token_ids) details.set("reasoning_tokens", usage.reasoning_tokens);
  add_draft_usage(usage, details);
  if (details.size() > 0) out.set("completion_tokens_details", std::move(details));
  out.set("prompt_cache_hit_tokens", usage.cached_tokens);
  out.set("prompt_cache_miss_tokens", usage.prompt_tokens - usage.cached_tokens);
  if (!usage.cache_debug.is_null()) out.set("cache_debug", usage.cache_debug);
  return out;
}

namespace {

Json fingerprint_json(const OutputStream& stream) { return stream.fingerprint() ? Json(*stream.fingerprint()) : Json(); }

}  // namespace

std::string tool_call_suffix(uint64_t seed, int index) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  uint64_t state = seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(index + 1);
  std::string out;
  for (int i = 0; i < 24; ++i) {
    state += 0x9E3779B97F4A7C15u;  // SplitMix64
    uint64_t mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    out += kAlphabet[(mixed ^ (mixed >> 31)) % kAlphabet.size()];
  }
  return out;
}

Json ChatAnswerWriter::text_delta(Json content, Json reasoning) const {
  Json delta = object({{"content", std::move(content)}});
  if (info_.thinking) delta.set("reasoning_content", std::move(reasoning));
  return delta;
}

std::string ChatAnswerWriter::begin_call(const OutputEvent& event) {
  const std::string suffix = info_.call_suffix ? info_.call_suffix(event.tool_index) : tool_call_suffix(0, event.tool_index);
  calls_.push_back({fmt::format("call_{:02}_{}", event.tool_index, suffix), event.text, ""});
  return calls_.back().id;
}

Json ChatAnswerWriter::delta_of(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::kStart: {
      const bool reasons_first = info_.thinking && !info_.continues_content;
      Json delta = object({{"role", "assistant"}, {"content", reasons_first ? Json() : Json("")}});
      if (info_.thinking) delta.set("reasoning_content", reasons_first ? Json("") : Json());
      return delta;
    }
    case OutputEvent::Kind::kReasoning: reasoning_ += event.text; return text_delta(nullptr, event.text);
    case OutputEvent::Kind::kContent: content_ += event.text; return text_delta(event.text, nullptr);
    case OutputEvent::Kind::kToolBegin:
      return object({{"tool_calls", list_of(object({{"index", event.tool_index},
                                                    {"id", begin_call(event)},
                                                    {"type", "function"},
                                                    {"function", object({{"name", event.text}, {"arguments", ""}})}}))}});
    case OutputEvent::Kind::kToolArguments:
      calls_.back().arguments += event.text;
      return object(
          {{"tool_calls", list_of(object({{"index", event.tool_index}, {"function", object({{"arguments", event.text}})}}))}});
    case OutputEvent::Kind::kFinish: end_ = event.end; return text_delta("", nullptr);
  }
  return {};
}

Json ChatAnswerWriter::log_of(const OutputEvent& event) {
  if (event.logged.empty()) return {};
  Json tokens = Json::array();
  const bool reasoning = event.kind == OutputEvent::Kind::kReasoning;
  for (const LoggedToken& token : event.logged) {
    tokens.push_back(token_log_json(token));
    (reasoning ? reasoning_log_ : content_log_).push_back(tokens.items().back());
  }
  return object({{reasoning ? "reasoning_content" : "content", std::move(tokens)}});
}

Json ChatAnswerWriter::event(const OutputEvent& event, const OutputStream& stream) {
  const bool last = event.kind == OutputEvent::Kind::kFinish;
  Json delta = delta_of(event);
  Json choice = object({{"index", info_.choice},
                        {"delta", std::move(delta)},
                        {"logprobs", log_of(event)},
                        {"finish_reason", last ? Json(finish_reason_name(event.end)) : Json()}});
  Json chunk = object({{"id", info_.id},
                       {"object", "chat.completion.chunk"},
                       {"created", info_.created},
                       {"model", info_.model},
                       {"system_fingerprint", fingerprint_json(stream)},
                       {"choices", list_of(std::move(choice))}});
  const bool with_usage = last && !info_.usage_apart;
  if (with_usage) chunk.set("usage", chat_usage(stream.usage(), info_.thinking));
  if (!with_usage && info_.null_usage) chunk.set("usage", nullptr);
  return chunk;
}

void ChatAnswerWriter::collect(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::kStart: break;
    case OutputEvent::Kind::kReasoning: reasoning_ += event.text; break;
    case OutputEvent::Kind::kContent: content_ += event.text; break;
    case OutputEvent::Kind::kToolBegin: begin_call(event); break;
    case OutputEvent::Kind::kToolArguments: calls_.back().arguments += event.text; break;
    case OutputEvent::Kind::kFinish: end_ = event.end; break;
  }
  if (!event.logged.empty()) log_of(event);
}

Json ChatAnswerWriter::choice() const {
  Json message = object({{"role", "assistant"}, {"content", content_}});
  if (info_.thinking && !(info_.continues_content && reasoning_.empty())) message.set("reasoning_content", reasoning_);
  if (!calls_.empty()) {
    Json calls = Json::array();
    for (size_t i = 0; i < calls_.size(); ++i) {
      calls.push_back(object({{"index", static_cast<int>(i)},
                              {"id", calls_[i].id},
                              {"type", "function"},
                              {"function", object({{"name", calls_[i].name}, {"arguments", calls_[i].arguments}})}}));
    }
    message.set("tool_calls", std::move(calls));
  }
  Json logprobs;
  if (content_log_.size() + reasoning_log_.size() > 0) logprobs = Json::object();
  if (content_log_.size() > 0) logprobs.set("content", content_log_);
  if (reasoning_log_.size() > 0) logprobs.set("reasoning_content", reasoning_log_);
  return object({{"index", info_.choice},
                 {"message", std::move(message)},
                 {"logprobs", std::move(logprobs)},
                 {"finish_reason", finish_reason_name(end_)}});
}

Json ChatAnswerWriter::response(const OutputStream& stream) const {
  return object({{"id", info_.id},
                 {"object", "chat.completion"},
                 {"created", info_.created},
                 {"model", info_.model},
                 {"choices", list_of(choice())},
                 {"usage", chat_usage(stream.usage(), info_.thinking)},
                 {"system_fingerprint", fingerprint_json(stream)}});
}

Json ChatAnswerWriter::usage_chunk(const AnswerUsage& usage, const OutputStream& stream) const {
  return object({{"id", info_.id},
                 {"object", "chat.completion.chunk"},
                 {"created", info_.created},
                 {"model", info_.model},
                 {"system_fingerprint", fingerprint_json(stream)},
                 {"choices", Json::array()},
                 {"usage", chat_usage(usage, info_.thinking)}});
}

// Cuts a sample chunk at the text of its delta.
void ChatAnswerWriter::prepare_text(const OutputStream& stream) {
  constexpr std::string_view kMark = "\"\"";
  const auto cut = [&](OutputEvent::Kind kind, std::string_view key, std::string& head, std::string& tail) {
    OutputEvent sample;
    sample.kind = kind;
    ChatAnswerWriter scratch(info_);
    const std::string text = scratch.event(sample, stream).dump();
    const size_t at = text.find(kMark, text.rfind(key)) + 1;
    head = text.substr(0, at);
    tail = text.substr(at);
  };
  cut(OutputEvent::Kind::kContent, "\"content\":", content_head_, content_tail_);
  if (info_.thinking) cut(OutputEvent::Kind::kReasoning, "\"reasoning_content\":", reasoning_head_, reasoning_tail_);
}

void ChatAnswerWriter::append_event(const OutputEvent& event, const OutputStream& stream, std::string& out) {
  const bool is_content = event.kind == OutputEvent::Kind::kContent, is_reasoning = event.kind == OutputEvent::Kind::kReasoning;
  if (!event.logged.empty() || !(is_content || (is_reasoning && info_.thinking))) {
    out += this->event(event, stream).dump();
    return;
  }
  if (content_head_.empty()) prepare_text(stream);
  out += is_content ? content_head_ : reasoning_head_;
  out.pop_back();  // append_json_string writes the quotes
  append_json_string(out, event.text);
  out += std::string_view(is_content ? content_tail_ : reasoning_tail_).substr(1);
}

}  // namespace deepinfer
