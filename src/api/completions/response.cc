#include "api/completions/response.h"

#include "api/finish_reason.h"
#include "base/utf8.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) next_code_point(text, at);
  return count;
}

Json list_of(Json item) {
  Json list = Json::array();
  list.push_back(std::move(item));
  return list;
}

}  // namespace

Json completion_usage(const AnswerUsage& usage) {
  Json out = Json::object({{"prompt_tokens", usage.prompt_tokens},
                           {"completion_tokens", usage.completion_tokens},
                           {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                           {"prompt_tokens_details", Json::object({{"cached_tokens", usage.cached_tokens}})},
                           {"prompt_cache_hit_tokens", usage.cached_tokens},
                           {"prompt_cache_miss_tokens", usage.prompt_tokens - usage.cached_tokens}});
  Json details = Json::object();
  add_draft_usage(usage, details);
  if (details.size() > 0) out.set("completion_tokens_details", std::move(details));
  if (!usage.cache_debug.is_null()) out.set("cache_debug", usage.cache_debug);
  return out;
}

// The logprobs object of this event; what it holds is also kept for choice().
Json CompletionWriter::log_of(const OutputEvent& event) {
  if (event.logged.empty()) return {};
  has_log_ = true;
  Json tokens = Json::array(), values = Json::array(), top = Json::array(), offsets = Json::array();
  int64_t at = offset_;
  for (const LoggedToken& token : event.logged) {
    Json alternatives = Json::object();
    for (const LoggedToken::Choice& choice : token.top)
      alternatives.set(visible_bytes(choice.bytes), Json::number(python_number(choice.logprob)));
    tokens.push_back(visible_bytes(token.sampled.bytes));
    values.push_back(Json::number(python_number(token.sampled.logprob)));
    top.push_back(std::move(alternatives));
    offsets.push_back(at);
    at += num_characters(token.sampled.bytes);
    log_tokens_.push_back(tokens.items().back());
    log_values_.push_back(values.items().back());
    log_top_.push_back(top.items().back());
    log_offsets_.push_back(offsets.items().back());
  }
  return Json::object({{"tokens", std::move(tokens)},
                       {"token_logprobs", std::move(values)},
                       {"top_logprobs", std::move(top)},
                       {"text_offset", std::move(offsets)}});
}

bool CompletionWriter::append_event(const OutputEvent& event, const OutputStream& stream, std::string& out) {
  const bool last = event.kind == OutputEvent::Kind::kFinish;
  std::string text;
  if (event.kind == OutputEvent::Kind::kStart) text = info_.echo;
  if (event.kind == OutputEvent::Kind::kContent) text = event.text;
  if (!last && text.empty()) return false;
  Json log = log_of(event);
  offset_ += num_characters(text);
  Json choice = Json::object({{"index", info_.choice},
                              {"text", std::move(text)},
                              {"logprobs", std::move(log)},
                              {"finish_reason", last ? Json(finish_reason_name(event.end)) : Json()}});
  out += object(list_of(std::move(choice)), {}, stream).dump();
  return true;
}

void CompletionWriter::take(const OutputEvent& event) {
  if (event.kind == OutputEvent::Kind::kStart) text_ = info_.echo;
  if (event.kind == OutputEvent::Kind::kContent) text_ += event.text;
  if (event.kind == OutputEvent::Kind::kFinish) end_ = event.end;
  log_of(event);
  offset_ = num_characters(text_);
}

Json CompletionWriter::choice() const {
  Json log;
  if (has_log_) {
    log = Json::object(
        {{"tokens", log_tokens_}, {"token_logprobs", log_values_}, {"top_logprobs", log_top_}, {"text_offset", log_offsets_}});
  }
  return Json::object(
      {{"index", info_.choice}, {"text", text_}, {"logprobs", std::move(log)}, {"finish_reason", finish_reason_name(end_)}});
}

Json CompletionWriter::object(Json choices, Json usage, const OutputStream& stream) const {
  Json body = Json::object({{"id", info_.id},
                            {"object", "text_completion"},
                            {"created", info_.created},
                            {"model", info_.model},
                            {"choices", std::move(choices)},
                            {"system_fingerprint", stream.fingerprint() ? Json(*stream.fingerprint()) : Json()}});
  if (!usage.is_null()) body.set("usage", std::move(usage));
  return body;
}

}  // namespace deepinfer
