#include "api/messages/request.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/common_rules.h"
#include "api/json_body.h"
#include "api/messages/body.h"
#include "api/messages/turns.h"

namespace deepinfer {

namespace {

bool is_web_search(const MessagesTool& tool) { return tool.type.starts_with("web_search_"); }

// Names, server tools and deferral; drops web search tools where the options say so.
Status check_declared(MessagesBody& body, const ApiOptions& options) {
  const bool open = profile_rules(options.profile).messages_client_tools;
  for (size_t i = 0; i < body.tools.size(); ++i) {
    MessagesTool& tool = body.tools[i];
    if (open && tool.type == "custom") tool.has_type = false;
    if (tool.has_type && !(drops_web_search(options) && is_web_search(tool))) {
      return invalid_argument(fmt::format("tools[{}]: server tools are not supported", i));
    }
    if (!tool.has_type) DI_CHECK_OK(check_tool_name(tool.tool.name, fmt::format("tools[{}].name", i)));
  }
  std::erase_if(body.tools, [](const MessagesTool& tool) { return tool.has_type; });
  const bool all_deferred =
      std::all_of(body.tools.begin(), body.tools.end(), [](const auto& tool) { return tool.tool.deferred; });
  if (body.tools.empty() || !all_deferred) return {};
  return invalid_argument("tools: at least one tool must have defer_loading=false. All tools cannot be deferred.");
}

Status check_numbers(const MessagesBody& body, const ApiOptions& options, ChatRequest& request) {
  DI_CHECK_OK(check_stop(body.stop, true));
  DI_CHECK_OK(check_temperature(body.temperature));
  DI_CHECK_OK(check_top_p(body.top_p));
  std::optional<uint64_t> max_tokens = body.max_tokens;
  const bool thinking = request.conversation.thinking;
  // More than the bound is lowered, not refused.
  if (max_tokens) {
    const auto bound = static_cast<uint64_t>(thinking ? options.max_tokens_thinking : options.max_tokens_plain);
    max_tokens = std::min(*max_tokens, bound);
  }
  DI_CHECK_OK(check_max_tokens(max_tokens, thinking, options));
  if (max_tokens) request.max_tokens = static_cast<int64_t>(*max_tokens);
  request.stop = body.stop;
  set_sampling(request, body.temperature, body.top_p, profile_rules(options.profile));
  return {};
}

// Profile official knows neither strict tools nor formats, and takes `any` for auto.
Status settle_structure(MessagesBody& body, std::vector<ToolDefinition>& tools, const ApiOptions& options, Conversation& chat) {
  if (!profile_rules(options.profile).messages_structured) {
    for (ToolDefinition& tool : tools) tool.strict.reset();
    return {};
  }
  if (body.any_tool) body.choice = ToolChoice::kRequired;
  if (!body.one_call.is_null()) {
    if (!body.one_call.is_bool()) return invalid_argument("tool_choice.disable_parallel_tool_use: expected a boolean");
    DI_CHECK_OK(limit_calls(chat, !body.one_call.as_bool(), std::nullopt));
  }
  if (!body.format || body.format->is_null()) return {};
  const Json* type = body.format->find("type");
  const Json* schema = body.format->find("schema");
  if (!type || !type->is_string() || type->as_string() != "json_schema" || !schema) {
    return invalid_argument("output_config.format: expected {\"type\": \"json_schema\", \"schema\": {...}}");
  }
  // As the public service does: an answer does not go on with such a message, so it could not be of the form together with it.
  if (!chat.messages.empty() && chat.messages.back().role == Role::kAssistant) {
    return invalid_argument(
        "output_config.format cannot be used while the last message is the assistant's (prefill): leave one out");
  }
  chat.format.kind = ResponseFormat::Kind::kJsonSchema;
  chat.format.schema = *schema;
  return check_response_schema(chat.format, false, profile_rules(options.profile));
}

Result<ChatRequest> check(MessagesBody body, const ApiOptions& options) {
  ChatRequest request;
  Conversation& chat = request.conversation;
  if (!options.messages_takes_claude || !body.model.starts_with("claude")) DI_CHECK_OK(check_model(body.model, options));
  request.model = body.model;
  const ThinkingSetting setting = resolve_thinking(body.thinking, body.effort_word, options.default_thinking);
  chat.thinking = setting.on;
  chat.effort = setting.effort;
  DI_CHECK_OK(check_declared(body, options));
  DI_CHECK_OK(convert_messages_turns(body, options, chat));
  std::vector<ToolDefinition> tools;
  for (const MessagesTool& tool : body.tools) tools.push_back(tool.tool);
  DI_CHECK_OK(check_tool_names_unique(tools));
  DI_CHECK_OK(settle_structure(body, tools, options, chat));
  DI_CHECK_OK(check_plain_schemas(tools));
  DI_CHECK_OK(apply_tool_choice(chat, tools, body.choice, body.chosen, profile_rules(options.profile)));
  DI_CHECK_OK(check_numbers(body, options, request));
  request.stream = body.stream.value_or(false);
  if (options.reject_missing_reasoning && chat.thinking && lacks_reasoning(chat, !chat.tools.empty())) {
    return invalid_argument("The `content[].thinking` in the thinking mode must be passed back to the API.");
  }
  settle_reasoning(chat);
  return request;
}

}  // namespace

Result<ChatRequest> parse_messages_request(std::string_view body, const ApiOptions& options) {
  DI_TRY(Json json, parse_json_body(body));
  // Profile official ignores it, as the recipe does with fields it does not know.
  if (options.profile == Profile::kOpen && json.at("thread").is_object()) return invalid_argument(std::string(kThreadsNotKept));
  DI_TRY(MessagesBody decoded, decode_messages_body(json));
  DI_TRY(ChatRequest request, check(std::move(decoded), options));
  if (profile_rules(options.profile).foreign_fields) {
    DI_TRY(request.foreign, read_foreign_fields(json));
  }
  return request;
}

}  // namespace deepinfer
