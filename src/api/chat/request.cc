#include "api/chat/request.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/chat/body.h"
#include "api/chat/messages.h"
#include "api/common_rules.h"
#include "api/json_body.h"

namespace deepinfer {

namespace {

// One check after the other, in the order of the official service.
class RequestChecker {
 public:
  RequestChecker(ChatBody body, const ApiOptions& options)
      : body_(std::move(body)), options_(options), rules_(profile_rules(options.profile)) {}

  Result<ChatRequest> check() {
    DI_CHECK_OK(check_model(body_.model, options_));
    request_.model = body_.model;
    set_mode();
    for (size_t i = 0; i < body_.tools.size(); ++i) {
      DI_CHECK_OK(check_tool_name(body_.tools[i].name, fmt::format("tools[{}].function.name", i)));
    }
    DI_CHECK_OK(convert_chat_messages(body_, chat()));
    if (chat().format.kind == ResponseFormat::Kind::kJsonObject && !mentions_json(chat().messages)) {
      return invalid_argument("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.");
    }
    DI_CHECK_OK(check_tools());
    DI_CHECK_OK(check_stop(body_.stop, body_.stop_is_list));
    request_.stop = body_.stop;
    DI_CHECK_OK(check_stream_options());
    DI_CHECK_OK(check_response_schema(chat().format, body_.format_is_strict, rules_));
    DI_CHECK_OK(check_numbers());
    if (options_.reject_missing_reasoning && chat().thinking && lacks_reasoning(chat(), !chat().tools.empty())) {
      return invalid_argument("The `reasoning_content` in the thinking mode must be passed back to the API.");
    }
    settle_reasoning(chat());
    return std::move(request_);
  }

 private:
  Conversation& chat() { return request_.conversation; }

  void set_mode() {
    const ThinkingSetting setting = resolve_thinking(body_.thinking, body_.effort_word, options_.default_thinking);
    chat().thinking = setting.on;
    chat().effort = setting.effort;
    if (body_.format) chat().format = *body_.format;
    if (body_.grammar) request_.grammar = std::move(*body_.grammar);
  }

  Status check_tools() {
    if (body_.grammar && request_.grammar.empty()) return invalid_argument("response_format.grammar: the grammar is empty");
    DI_CHECK_OK(check_tool_names_unique(body_.tools));
    DI_CHECK_OK(check_tool_schemas(body_.tools, rules_));
    const ChatToolChoice choice = body_.tool_choice.value_or(ChatToolChoice{});
    DI_CHECK_OK(apply_tool_choice(chat(), body_.tools, choice.choice, choice.name, rules_));
    DI_CHECK_OK(keep_allowed_tools(chat(), choice.allowed));
    DI_CHECK_OK(limit_calls(chat(), body_.parallel_tool_calls, std::nullopt));
    if (body_.tools.empty()) return {};
    return check_strict_mix(chat().tools, body_.format.has_value(), rules_);
  }

  Status check_stream_options() {
    request_.stream = body_.stream.value_or(false);
    request_.include_usage = body_.include_usage.value_or(false);
    if (!body_.has_stream_options || request_.stream) return {};
    return invalid_argument("stream_options should be set along with stream = true");
  }

  Status check_numbers() {
    const uint64_t most_answers = rules_.several_answers ? 128 : 1;
    const uint64_t num_answers = body_.num_answers.value_or(1);
    if (num_answers < 1 || num_answers > most_answers) {
      return invalid_argument(rules_.several_answers ? "Invalid n value, the valid range of n is [1, 128]"
                                                     : "Invalid n value (currently only n = 1 is supported)");
    }
    request_.num_answers = static_cast<int>(num_answers);
    DI_CHECK_OK(check_penalty("presence_penalty", body_.presence_penalty));
    DI_CHECK_OK(check_penalty("frequency_penalty", body_.frequency_penalty));
    DI_CHECK_OK(check_temperature(body_.temperature));
    DI_CHECK_OK(check_top_p(body_.top_p));
    DI_CHECK_OK(check_logprobs());
    if (!body_.max_tokens) body_.max_tokens = body_.max_completion_tokens;
    DI_CHECK_OK(check_max_tokens(body_.max_tokens, chat().thinking, options_));
    if (body_.seed && *body_.seed >= (uint64_t{1} << 63)) {
      return invalid_argument("Invalid seed value, the valid range of seed is [0, 2^63)");
    }
    fill_numbers();
    return {};
  }

  Status check_logprobs() {
    request_.logprobs = body_.logprobs.value_or(false);
    if (!body_.top_logprobs) return {};
    if (*body_.top_logprobs > 20)
      return invalid_argument("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
    if (!request_.logprobs) {
      return invalid_argument("Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.");
    }
    request_.top_logprobs = static_cast<int>(*body_.top_logprobs);
    return {};
  }

  void fill_numbers() {
    set_sampling(request_, body_.temperature, body_.top_p, rules_);
    if (rules_.honours_sampling) {
      request_.logit_bias = body_.logit_bias;
      request_.frequency_penalty = body_.frequency_penalty.value_or(0.0f);
      request_.presence_penalty = body_.presence_penalty.value_or(0.0f);
    }
    request_.seed = body_.seed;
    if (body_.max_tokens) request_.max_tokens = static_cast<int64_t>(*body_.max_tokens);
  }

  ChatBody body_;
  const ApiOptions& options_;
  ProfileRules rules_;
  ChatRequest request_;
};

}  // namespace

void set_sampling(ChatRequest& request, std::optional<float> temperature, std::optional<float> top_p, const ProfileRules& rules) {
  request.sampling = rules.honours_sampling ? EffectiveSampling{temperature.value_or(1.0f), top_p.value_or(1.0f)}
                                            : effective_sampling(request.conversation.thinking, temperature, top_p);
  request.gives_temperature = temperature || !rules.follows_checkpoint;
  request.gives_top_p = top_p || !rules.follows_checkpoint;
}

Result<ChatRequest> parse_chat_request(std::string_view body, const ApiOptions& options) {
  DI_TRY(Json json, parse_json_body(body));
  const ProfileRules rules = profile_rules(options.profile);
  DI_TRY(ChatBody decoded, decode_chat_body(json, rules));
  ForeignFields foreign;
  if (rules.foreign_fields) {
    DI_TRY(foreign, read_foreign_fields(json));
  }
  if (foreign.thinking && decoded.thinking == ThinkingSwitch::kUnset)
    decoded.thinking = *foreign.thinking ? ThinkingSwitch::kOn : ThinkingSwitch::kOff;
  DI_TRY(ChatRequest request, RequestChecker(std::move(decoded), options).check());
  request.foreign = foreign;
  return request;
}

}  // namespace deepinfer
