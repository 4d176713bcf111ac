#include "api/responses/request.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/common_rules.h"
#include "api/decode.h"
#include "api/json_body.h"
#include "api/responses/body.h"
#include "api/responses/items.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json number_or(std::optional<float> value, float otherwise) {
  return Json::number(python_number(static_cast<double>(value.value_or(otherwise))));
}

Json format_echo(const ResponsesBody& body) {
  switch (body.format.kind) {
    case ResponseFormat::Kind::kJsonObject: return Json::object({{"type", "json_object"}});
    case ResponseFormat::Kind::kJsonSchema:
      return Json::object({{"type", "json_schema"},
                           {"name", or_null(body.format_name)},
                           {"schema", body.format.schema},
                           {"description", or_null(body.format_description)},
                           {"strict", or_null(body.format_strict)}});
    default: return Json::object({{"type", "text"}});
  }
}

class RequestChecker {
 public:
  RequestChecker(ResponsesBody body, const ApiOptions& options)
      : body_(std::move(body)), options_(options), rules_(profile_rules(options.profile)) {}

  Result<ResponsesRequest> check() {
    DI_CHECK_OK(check_model(body_.model, options_));
    request_.chat.model = body_.model;
    const ThinkingSetting setting = resolve_thinking(ThinkingSwitch::kUnset, body_.effort_word, options_.default_thinking);
    chat().thinking = setting.on;
    chat().effort = setting.effort;
    chat().format = body_.format;
    DI_CHECK_OK(check_responses_tools(body_.tools, "tools", options_));
    std::vector<ToolDefinition> found;
    DI_CHECK_OK(convert_responses_items(body_, options_, chat(), found));
    DI_CHECK_OK(check_tools(std::move(found)));
    if (chat().format.kind == ResponseFormat::Kind::kJsonObject && !mentions_json(chat().messages)) {
      return invalid_argument(
          "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.");
    }
    DI_CHECK_OK(check_response_schema(chat().format, body_.format_is_strict, rules_));
    DI_CHECK_OK(check_numbers());
    if (options_.reject_missing_reasoning && chat().thinking && lacks_reasoning(chat(), !chat().tools.empty())) {
      return invalid_argument("The `reasoning_text` in the thinking mode must be passed back to the API.");
    }
    settle_reasoning(chat());
    fill_echo();
    return std::move(request_);
  }

 private:
  Conversation& chat() { return request_.chat.conversation; }

  Status check_tools(std::vector<ToolDefinition> found) {
    std::vector<ToolDefinition> tools;
    if (body_.choice == ToolChoice::kNone) return apply_tool_choice(chat(), {}, body_.choice, std::nullopt, rules_);
    append_responses_tools(body_.tools, false, tools, &request_.namespaces);
    tools.insert(tools.end(), found.begin(), found.end());
    DI_CHECK_OK(check_tool_names_unique(tools));
    DI_CHECK_OK(check_tool_schemas(tools, rules_));
    DI_CHECK_OK(apply_tool_choice(chat(), tools, body_.choice, body_.chosen, rules_));
    DI_CHECK_OK(keep_allowed_tools(chat(), body_.allowed));
    DI_CHECK_OK(limit_calls(chat(), body_.parallel_tool_calls, body_.max_tool_calls));
    return check_strict_mix(chat().tools, body_.format.kind != ResponseFormat::Kind::kText, rules_);
  }

  Status check_numbers() {
    DI_CHECK_OK(check_temperature(body_.temperature));
    DI_CHECK_OK(check_top_p(body_.top_p));
    if (body_.top_logprobs && *body_.top_logprobs > 20) {
      return invalid_argument("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
    }
    DI_CHECK_OK(check_max_tokens(body_.max_output_tokens, chat().thinking, options_));
    ChatRequest& out = request_.chat;
    set_sampling(out, body_.temperature, body_.top_p, rules_);
    if (body_.max_output_tokens) out.max_tokens = static_cast<int64_t>(*body_.max_output_tokens);
    if (body_.top_logprobs) out.top_logprobs = static_cast<int>(*body_.top_logprobs);
    out.logprobs = body_.top_logprobs.has_value();
    out.stream = request_.stream = body_.stream.value_or(false);
    return {};
  }

  void fill_echo() {
    ResponsesEcho& echo = request_.echo;
    echo.instructions = or_null(body_.instructions);
    echo.max_output_tokens = or_null(body_.max_output_tokens);
    echo.temperature = number_or(body_.temperature, 1.0f);
    echo.top_p = number_or(body_.top_p, 1.0f);
    echo.top_logprobs = body_.top_logprobs.value_or(0);
    echo.user = or_null(body_.user);
    echo.effort = body_.effort_word ? Json(effort_words()[*body_.effort_word]) : Json();
    echo.summary = or_null(body_.summary);
    echo.format = format_echo(body_);
    echo.tool_choice = body_.choice_echo;
    echo.parallel_tool_calls = body_.parallel_tool_calls.value_or(true);
    echo.max_tool_calls = or_null(body_.max_tool_calls);
    echo.tools = echo_responses_tools(body_.tools);
    request_.has_apply_patch = std::any_of(body_.tools.begin(), body_.tools.end(),
                                           [](const ResponsesTool& tool) { return tool.kind == ResponsesTool::Kind::kCustom; });
  }

  ResponsesBody body_;
  const ApiOptions& options_;
  ProfileRules rules_;
  ResponsesRequest request_;
};

// Of the reference's struct.
constexpr int kNumFields = 13;

// What profile `open` reads beyond the recipe's fields.
struct OpenFields {
  std::optional<bool> store, background;
  bool logprobs = false;
  std::optional<std::string> previous;
  Json metadata = Json::object();
};

Result<OpenFields> read_open_fields(const Json& json) {
  OpenFields out;
  DI_CHECK_OK(
      decode_struct(json, "ResponsesRequest",
                    {optional("store", into(out.store, read_bool)), optional("background", into(out.background, read_bool)),
                     optional("previous_response_id", into(out.previous, read_string)),
                     optional("metadata",
                              [&](const Json& value) -> Status {
                                if (!value.is_object()) return invalid_type(value, "a map");
                                out.metadata = value;
                                return {};
                              }),
                     optional("include",
                              [&](const Json& list) {
                                return read_list(list, [&](const Json& item) -> Status {
                                  out.logprobs |= item == Json("message.output_text.logprobs");
                                  return {};
                                });
                              })},
                    kNumFields));
  if (out.background.value_or(false) && !out.store.value_or(true)) {
    return invalid_argument("background requires store: a background response must be stored to be retrieved");
  }
  return out;
}

Json as_items(const Json& input) {
  if (input.is_array()) return input;
  Json items = Json::array();
  if (input.is_string()) items.push_back(Json::object({{"type", "message"}, {"role", "user"}, {"content", input}}));
  return items;
}

}  // namespace

Json ResponsesEcho::summary_form() const {
  return Json::object({{"instructions", instructions},
                       {"max_output_tokens", max_output_tokens},
                       {"temperature", temperature},
                       {"top_p", top_p},
                       {"top_logprobs", top_logprobs},
                       {"user", user}});
}

Result<ResponsesRequest> parse_responses_request(std::string_view body, const ApiOptions& options,
                                                 const ResponsesHistory& history) {
  DI_TRY(Json json, parse_json_body(body));
  if (!profile_rules(options.profile).stored_responses) {
    DI_TRY(ResponsesBody decoded, decode_responses_body(json));
    return RequestChecker(std::move(decoded), options).check();
  }
  DI_TRY(const OpenFields open, read_open_fields(json));
  const Json given = json.at("input");
  const Json input = as_items(given);
  Json items = input;
  if (open.previous) {
    const Json earlier = history ? history(*open.previous) : Json();
    if (!earlier.is_array()) return not_found(fmt::format("Previous response with id '{}' not found.", *open.previous));
    Json all = earlier;
    for (const Json& item : items.items()) all.push_back(item);
    items = std::move(all);
    if (given.is_null() || given.is_string() || given.is_array()) json.set("input", items);
  }
  DI_TRY(ResponsesBody decoded, decode_responses_body(json));
  DI_CHECK_OK(read_call_limits(json, decoded));
  DI_TRY(ResponsesRequest request, RequestChecker(std::move(decoded), options).check());
  request.chat.logprobs |= open.logprobs;
  request.input = input;
  request.items = std::move(items);
  request.store = open.store.value_or(true);
  request.background = open.background.value_or(false);
  request.echo.store = request.store;
  request.echo.background = request.background;
  request.echo.metadata = open.metadata;
  if (open.previous) request.echo.previous_response_id = *open.previous;
  return request;
}

}  // namespace deepinfer
