#include "api/chat/body.h"

#include <fmt/format.h>

#include "api/decode.h"

namespace deepinfer {

namespace {

Status read_json(const Json& json, Json& out) {
  out = json;
  return {};
}

Status read_u8(const Json& json, uint64_t& out) { return read_unsigned(json, "u8", 255, out); }
Status read_u32(const Json& json, uint64_t& out) { return read_unsigned(json, "u32", UINT32_MAX, out); }
Status read_u64(const Json& json, uint64_t& out) { return read_unsigned(json, "u64", UINT64_MAX, out); }

const std::vector<std::string_view> kDetails{"low", "high", "original", "auto"};
const std::vector<std::string_view> kFunctionOnly{"function"};

Status ignore(const Json&) { return {}; }

// A tag such as "type": "function" that only has to be there.
FieldRule required_tag(std::string_view name, const std::vector<std::string_view>& variants) {
  return required(name, [&variants](const Json& json) {
    size_t unused = 0;
    return read_variant(json, variants, unused);
  });
}

Status read_image_url(const Json& json, ChatPart& part) {
  return decode_struct(json, "ChatCompletionImageUrl",
                       {required("url", into(part.text, read_string)), optional("detail", [&](const Json& value) -> Status {
                          size_t index = 0;
                          DI_CHECK_OK(read_variant(value, kDetails, index));
                          part.detail = kDetails[index];
                          return {};
                        })});
}

Status read_part(const Json& json, ChatPart& part) {
  static const std::vector<std::string_view> kinds{"text", "image_url", "file"};
  constexpr std::string_view kName = "ChatCompletionRequestContentBlock";
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, kName, "type", kinds, kind));
  part.kind = static_cast<ChatPart::Kind>(kind);
  switch (part.kind) {
    case ChatPart::Kind::kText: return decode_struct(json, kName, {required("text", into(part.text, read_string))});
    case ChatPart::Kind::kImageUrl:
      return decode_struct(json, kName, {required("image_url", [&](const Json& value) { return read_image_url(value, part); })});
    case ChatPart::Kind::kFile: break;
  }
  return decode_struct(
      json, kName,
      {optional("file_id", into(part.file_id, read_string)), optional("file_data", into(part.file_data, read_string)),
       optional("filename", into(part.filename, read_string))});
}

Status read_content(const Json& json, ChatContent& content) {
  if (json.is_string()) {
    content.parts.push_back({});
    content.parts.back().text = json.as_string();
    return {};
  }
  if (!json.is_array()) return decode_error("content should be a string or a list");
  content.is_list = true;
  return read_list(json, [&](const Json& item) { return read_part(item, content.parts.emplace_back()); });
}

Status read_call(const Json& json, ToolCall& call) {
  return decode_struct(json, "ChatCompletionMessageToolCall",
                       {required("id", into(call.id, read_string)), required_tag("type", kFunctionOnly),
                        required("function", [&](const Json& function) {
                          return decode_struct(function, "ChatCompletionMessageToolCallFunction",
                                               {required("name", into(call.name, read_string)),
                                                required("arguments", into(call.arguments, read_string))});
                        })});
}

Status read_calls(const Json& json, std::vector<ToolCall>& calls) {
  return read_list(json, [&](const Json& item) { return read_call(item, calls.emplace_back()); });
}

Status read_message(const Json& json, ChatMessage& message, const ProfileRules& rules) {
  static const std::vector<std::string_view> official{"system", "user", "assistant", "tool", "latest_reminder"};
  static const std::vector<std::string_view> open{"system", "user", "assistant", "tool", "latest_reminder", "developer"};
  constexpr std::string_view kName = "ChatCompletionRequestMessage";
  size_t role = 0;
  DI_CHECK_OK(read_tag(json, kName, "role", rules.developer_is_system ? open : official, role));
  message.role = role == 5 ? Role::kSystem : static_cast<Role>(role);
  const FieldRule content = required("content", into(message.content, read_content));
  switch (message.role) {
    case Role::kSystem:
    case Role::kUser: return decode_struct(json, kName, {content});
    case Role::kTool:
      return decode_struct(json, kName, {content, required("tool_call_id", into(message.tool_call_id, read_string))});
    case Role::kReminder: {
      message.content.emplace();
      ChatPart& part = message.content->parts.emplace_back();
      return decode_struct(json, kName, {required("content", into(part.text, read_string))});
    }
    case Role::kAssistant: break;
  }
  return decode_struct(
      json, kName,
      {optional("content", into(message.content, read_content)),
       optional("reasoning_content", into(message.reasoning, read_string)),
       optional("tool_calls", into(message.tool_calls, read_calls)), optional("prefix", into(message.prefix, read_bool))});
}

Status read_thinking(const Json& json, ThinkingSwitch& thinking) {
  static const std::vector<std::string_view> types{"adaptive", "enabled", "disabled"};
  return decode_struct(json, "ChatCompletionThinking",
                       {required("type",
                                 [&](const Json& value) -> Status {
                                   size_t index = 0;
                                   DI_CHECK_OK(read_variant(value, types, index));
                                   thinking = index == 2 ? ThinkingSwitch::kOff : ThinkingSwitch::kOn;
                                   return {};
                                 })},
                       2);
}

Status read_stop(const Json& json, ChatBody& body) {
  if (json.is_string()) {
    body.stop = {json.as_string()};
    return {};
  }
  if (!json.is_array()) return decode_error("expected a string or a list");
  body.stop_is_list = true;
  body.stop.clear();
  return read_list(json, [&](const Json& item) { return read_string(item, body.stop.emplace_back()); });
}

Status read_tool(const Json& json, ToolDefinition& tool) {
  return decode_struct(
      json, "ChatCompletionTool",
      {required_tag("type", kFunctionOnly), required("function", [&](const Json& function) {
         return decode_struct(
             function, "ChatCompletionToolFunction",
             {required("name", into(tool.name, read_string)), optional("description", into(tool.description, read_string)),
              optional("parameters", into(tool.parameters, read_json)), optional("strict", into(tool.strict, read_bool))});
       })});
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": N}}]}}
Status read_allowed_tools(const Json& json, ChatToolChoice& choice) {
  static const std::vector<std::string_view> modes{"auto", "required"};
  size_t mode = 0;
  const auto read_name = [&](const Json& function) {
    return decode_struct(function, "ChatCompletionToolChoiceFunction",
                         {required("name", into(choice.allowed.emplace_back(), read_string))});
  };
  const auto read_tools = [&](const Json& list) {
    return read_list(list, [&](const Json& item) {
      return decode_struct(item, "ChatCompletionAllowedTool",
                           {required_tag("type", kFunctionOnly), required("function", read_name)});
    });
  };
  DI_CHECK_OK(decode_struct(
      json, "ChatCompletionAllowedTools",
      {required("mode", [&](const Json& value) { return read_variant(value, modes, mode); }), required("tools", read_tools)}));
  if (choice.allowed.empty()) return decode_error("allowed_tools.tools must name at least one tool");
  choice.choice = mode == 1 ? ToolChoice::kRequired : ToolChoice::kAuto;
  return {};
}

Status read_tool_choice(const Json& json, ChatToolChoice& choice, const ProfileRules& rules) {
  if (json.is_string()) {
    for (const ToolChoice candidate : {ToolChoice::kNone, ToolChoice::kAuto, ToolChoice::kRequired}) {
      if (json.as_string() != tool_choice_name(candidate)) continue;
      choice.choice = candidate;
      return {};
    }
  }
  const Json* type = json.find("type");
  if (!type) return decode_error("expected one of `none`, `auto`, `required` or a tool");
  if (rules.limits_calls && type->is_string() && type->as_string() == "allowed_tools") {
    const Status read = read_allowed_tools(json.at("allowed_tools"), choice);
    return read ? Status{} : within_field("allowed_tools", read.error());
  }
  size_t index = 0;
  if (const Status read = read_variant(*type, kFunctionOnly, index); !read) return within_field("type", read.error());
  choice.choice = ToolChoice::kRequired;
  const Status read =
      decode_struct(json.at("function"), "ChatCompletionToolChoiceFunction", {required("name", into(choice.name, read_string))});
  return read ? Status{} : within_field("function", read.error());
}

Status read_json_schema(const Json& json, ChatBody& body) {
  std::string name;
  std::optional<std::string> description;
  return decode_struct(
      json, "ChatCompletionJsonSchema",
      {optional("name", into(name, read_string)), required("schema", into(body.format->schema, read_json)),
       optional("strict", into(body.format_is_strict, read_bool)), optional("description", into(description, read_string))});
}

Status read_format(const Json& json, const ProfileRules& rules, ChatBody& body) {
  static const std::vector<std::string_view> recipe{"json_object", "json_schema", "regex", "text"};
  static const std::vector<std::string_view> open{"json_object", "json_schema", "regex", "text", "grammar"};
  constexpr std::string_view kName = "ChatCompletionResponseFormat";
  size_t type = 0;
  DI_CHECK_OK(read_tag(json, kName, "type", rules.grammar_format ? open : recipe, type));
  // To the prompt a grammar is a text like any.
  constexpr ResponseFormat::Kind kKinds[] = {ResponseFormat::Kind::kJsonObject, ResponseFormat::Kind::kJsonSchema,
                                             ResponseFormat::Kind::kRegex, ResponseFormat::Kind::kText,
                                             ResponseFormat::Kind::kText};
  body.format.emplace();
  body.format->kind = kKinds[type];
  if (body.format->kind == ResponseFormat::Kind::kJsonSchema) {
    return decode_struct(json, kName,
                         {required("json_schema", [&](const Json& value) { return read_json_schema(value, body); })});
  }
  if (body.format->kind == ResponseFormat::Kind::kRegex) {
    return decode_struct(json, kName, {required("regex", into(body.format->regex, read_string))});
  }
  if (type == 4) return decode_struct(json, kName, {required("grammar", into(body.grammar, read_string))});
  return {};
}

Status read_stream_options(const Json& json, ChatBody& body) {
  body.has_stream_options = true;
  return decode_struct(json, "ChatCompletionStreamOptions", {optional("include_usage", into(body.include_usage, read_bool))});
}

}  // namespace

Result<ChatBody> decode_chat_body(const Json& json, const ProfileRules& rules) {
  ChatBody body;
  const auto read_messages = [&](const Json& list) {
    return read_list(list, [&](const Json& item) { return read_message(item, body.messages.emplace_back(), rules); });
  };
  const auto read_tools = [&](const Json& list) {
    return read_list(list, [&](const Json& item) { return read_tool(item, body.tools.emplace_back()); });
  };
  const auto read_effort = [&](const Json& value) { return read_variant(value, effort_words(), body.effort_word.emplace()); };
  const FieldReader read_completion_limit =
      rules.max_completion_tokens ? into(body.max_completion_tokens, read_u32) : FieldReader(ignore);
  const FieldReader read_parallel = rules.limits_calls ? into(body.parallel_tool_calls, read_bool) : FieldReader(ignore);
  const FieldReader read_bias = rules.honours_sampling ? into(body.logit_bias, read_logit_bias) : FieldReader(ignore);
  DI_CHECK_OK(decode_struct(
      json, "ChatCompletionRequest",
      {required("messages", read_messages),
       required("model", into(body.model, read_string)),
       optional("thinking", into(body.thinking, read_thinking)),
       optional("reasoning_effort", read_effort),
       optional("max_tokens", into(body.max_tokens, read_u32)),
       optional("max_completion_tokens", read_completion_limit),
       optional("temperature", into(body.temperature, read_f32)),
       optional("top_p", into(body.top_p, read_f32)),
       optional("frequency_penalty", into(body.frequency_penalty, read_f32)),
       optional("presence_penalty", into(body.presence_penalty, read_f32)),
       optional("n", into(body.num_answers, read_u8)),
       optional("logit_bias", read_bias),
       optional("seed", into(body.seed, read_u64)),
       optional("stop", [&](const Json& value) { return read_stop(value, body); }),
       optional("stream", into(body.stream, read_bool)),
       optional("stream_options", [&](const Json& value) { return read_stream_options(value, body); }),
       optional("tools", read_tools),
       optional("tool_choice", [&](const Json& value) { return read_tool_choice(value, body.tool_choice.emplace(), rules); }),
       optional("parallel_tool_calls", read_parallel),
       optional("response_format", [&](const Json& value) { return read_format(value, rules, body); }),
       optional("logprobs", into(body.logprobs, read_bool)),
       optional("top_logprobs", into(body.top_logprobs, read_u8))}));
  return body;
}

}  // namespace deepinfer
