#include "api/responses/body.h"

#include "api/decode.h"
#include "api/responses/read_items.h"

namespace deepinfer {

namespace {

using Words = std::vector<std::string_view>;

Status read_u8(const Json& json, uint64_t& out) { return read_unsigned(json, "u8", 255, out); }
Status read_u32(const Json& json, uint64_t& out) { return read_unsigned(json, "u32", UINT32_MAX, out); }
Status read_json(const Json& json, Json& out) {
  out = json;
  return {};
}

Status read_input(const Json& json, ResponsesBody& body) {
  body.has_input = true;
  if (json.is_string()) {
    body.items.emplace_back().kind = ResponsesItem::Kind::kMessage;
    body.items.back().parts.emplace_back().text = json.as_string();
    return {};
  }
  if (!json.is_array()) return decode_error("input should be a string or a list of input items");
  body.input_is_list = true;
  return read_list(json, [&](const Json& item) { return read_responses_item(item, body.items.emplace_back()); });
}

Status read_format(const Json& json, ResponsesBody& body) {
  static const Words types{"text", "json_schema", "json_object"};
  constexpr ResponseFormat::Kind kKinds[] = {ResponseFormat::Kind::kText, ResponseFormat::Kind::kJsonSchema,
                                             ResponseFormat::Kind::kJsonObject};
  constexpr std::string_view kName = "ResponsesTextFormat";
  size_t type = 0;
  DI_CHECK_OK(read_tag(json, kName, "type", types, type));
  body.format.kind = kKinds[type];
  if (body.format.kind != ResponseFormat::Kind::kJsonSchema) return {};
  DI_CHECK_OK(decode_struct(
      json, kName,
      {required("name", into(body.format_name, read_string)), required("schema", into(body.format.schema, read_json)),
       optional("strict", into(body.format_strict, read_bool)),
       optional("description", into(body.format_description, read_string))}));
  body.format_is_strict = body.format_strict.value_or(false);
  return {};
}

Status read_text(const Json& json, ResponsesBody& body) {
  std::optional<std::string> verbosity;
  return decode_struct(json, "ResponsesTextConfig",
                       {optional("format", [&](const Json& value) { return read_format(value, body); })});
}

Status read_reasoning(const Json& json, ResponsesBody& body) {
  return decode_struct(
      json, "ResponsesReasoningConfig",
      {optional("effort", [&](const Json& word) { return read_variant(word, effort_words(), body.effort_word.emplace()); }),
       optional("summary", into(body.summary, read_string))});
}

Status read_choice(const Json& json, ResponsesBody& body) {
  if (json.is_string()) {
    for (const ToolChoice candidate : {ToolChoice::kNone, ToolChoice::kAuto, ToolChoice::kRequired}) {
      if (json.as_string() != tool_choice_name(candidate)) continue;
      body.choice = candidate;
      body.choice_echo = json;
      return {};
    }
  }
  const Json* type = json.find("type");
  if (!type) return decode_error("expected one of `none`, `auto`, `required` or a tool choice object");
  if (!type->is_string()) return invalid_type(*type, "variant identifier");
  const std::string& word = type->as_string();
  body.choice_echo = json;
  if (word != "function" && word != "custom") return {};  // tools we do not have: as if nothing was said
  body.choice = ToolChoice::kRequired;
  DI_CHECK_OK(decode_struct(json, "ResponsesToolChoice", {required("name", into(body.chosen, read_string))}));
  body.choice_echo = Json::object({{"type", word}, {"name", *body.chosen}});
  return {};
}

}  // namespace

Result<ResponsesBody> decode_responses_body(const Json& json) {
  ResponsesBody body;
  const auto with = [&body](Status (*read)(const Json&, ResponsesBody&)) {
    return FieldReader([&body, read](const Json& value) { return read(value, body); });
  };
  const auto read_tools = [&](const Json& list) {
    return read_list(list, [&](const Json& item) { return read_responses_tool(item, body.tools.emplace_back()); });
  };
  DI_CHECK_OK(
      decode_struct(json, "ResponsesRequest",
                    {required("model", into(body.model, read_string)), optional("input", with(read_input)),
                     optional("instructions", into(body.instructions, read_string)),
                     optional("max_output_tokens", into(body.max_output_tokens, read_u32)),
                     optional("temperature", into(body.temperature, read_f32)), optional("top_p", into(body.top_p, read_f32)),
                     optional("top_logprobs", into(body.top_logprobs, read_u8)), optional("reasoning", with(read_reasoning)),
                     optional("text", with(read_text)), optional("tools", read_tools), optional("tool_choice", with(read_choice)),
                     optional("stream", into(body.stream, read_bool)), optional("user", into(body.user, read_string))},
                    13));
  return body;
}

// tool_choice: {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": N}]}
Status read_call_limits(const Json& json, ResponsesBody& body) {
  static const Words modes{"auto", "required"}, kinds{"function", "custom"};
  DI_CHECK_OK(decode_struct(json, "ResponsesRequest",
                            {optional("parallel_tool_calls", into(body.parallel_tool_calls, read_bool)),
                             optional("max_tool_calls", into(body.max_tool_calls, read_u32))}));
  const Json& choice = json.at("tool_choice");
  if (!choice.at("type").is_string() || choice.at("type").as_string() != "allowed_tools") return {};
  size_t mode = 0, kind = 0;
  const auto read_tool = [&](const Json& item) {
    return decode_struct(item, "ResponsesAllowedTool",
                         {required("type", [&](const Json& value) { return read_variant(value, kinds, kind); }),
                          required("name", into(body.allowed.emplace_back(), read_string))});
  };
  DI_CHECK_OK(decode_struct(choice, "ResponsesAllowedTools",
                            {required("mode", [&](const Json& value) { return read_variant(value, modes, mode); }),
                             required("tools", [&](const Json& list) { return read_list(list, read_tool); })}));
  if (body.allowed.empty()) return decode_error("tool_choice.tools must name at least one tool");
  body.choice = mode == 1 ? ToolChoice::kRequired : ToolChoice::kAuto;
  return {};
}

}  // namespace deepinfer
