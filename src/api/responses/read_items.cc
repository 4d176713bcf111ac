#include "api/responses/read_items.h"

#include "api/decode.h"
#include "recipe/python_json.h"

namespace deepinfer {

namespace {

using Words = std::vector<std::string_view>;
using ItemKind = ResponsesItem::Kind;
using ToolKind = ResponsesTool::Kind;

constexpr std::string_view kItemName = "ResponsesInputItem";
constexpr std::string_view kToolName = "ResponsesTool";

Status read_json(const Json& json, Json& out) {
  out = json;
  return {};
}

Status read_image_fields(const Json& json, std::string_view what, ResponsesPart& part) {
  static const Words details{"low", "high", "original", "auto"};
  return decode_struct(
      json, what,
      {optional("image_url", into(part.image_url, read_string)), optional("file_id", into(part.file_id, read_string)),
       optional("detail", [&](const Json& value) -> Status {
         size_t index = 0;
         DI_CHECK_OK(read_variant(value, details, index));
         part.detail = details[index];
         return {};
       })});
}

Status read_part(const Json& json, std::string_view what, const Words& kinds, ResponsesPart& part) {
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, what, "type", kinds, kind));
  const std::string_view word = kinds[kind];
  if (word == "input_image") {
    part.kind = ResponsesPart::Kind::kImage;
    return read_image_fields(json, what, part);
  }
  if (word == "input_file") {
    part.kind = ResponsesPart::Kind::kFile;
    return {};
  }
  return decode_struct(json, what, {required("text", into(part.text, read_string))});
}

// A string or a list of parts; `fault` says what is expected.
Status read_parts(const Json& json, std::string_view what, const Words& kinds, std::string_view fault, ResponsesItem& item) {
  if (json.is_string()) {
    item.parts.emplace_back().text = json.as_string();
    return {};
  }
  if (!json.is_array()) return decode_error(std::string(fault));
  return read_list(json, [&](const Json& part) { return read_part(part, what, kinds, item.parts.emplace_back()); });
}

Status read_message(const Json& json, ResponsesItem& item) {
  static const Words roles{"user", "assistant", "system", "developer"};
  static const Words kinds{"input_text", "output_text", "input_image", "input_file"};
  constexpr Role kRoles[] = {Role::kUser, Role::kAssistant, Role::kSystem, Role::kSystem};
  item.kind = ItemKind::kMessage;
  return decode_struct(json, kItemName,
                       {required("role",
                                 [&](const Json& value) -> Status {
                                   size_t role = 0;
                                   DI_CHECK_OK(read_variant(value, roles, role));
                                   item.role = kRoles[role];
                                   return {};
                                 }),
                        required("content", [&](const Json& value) {
                          return read_parts(value, "ResponsesContentBlock", kinds,
                                            "content should be a string or a list of content blocks", item);
                        })});
}

Status read_reasoning(const Json& json, ResponsesItem& item) {
  item.kind = ItemKind::kReasoning;
  size_t index = 0;
  return decode_struct(
      json, kItemName, {optional("content", [&](const Json& list) {
        return read_list(list, [&](const Json& part) -> Status {
          std::string text;
          DI_CHECK_OK(decode_struct(part, "ResponsesReasoningText", {required("text", into(text, read_string))}));
          item.text += (index++ ? "\n" : "") + text;
          return {};
        });
      })});
}

Status read_function_call(const Json& json, ResponsesItem& item) {
  item.kind = ItemKind::kCall;
  std::optional<std::string> space;
  DI_CHECK_OK(
      decode_struct(json, kItemName,
                    {required("call_id", into(item.call_id, read_string)), required("name", into(item.name, read_string)),
                     optional("namespace", into(space, read_string)), required("arguments", into(item.arguments, read_string))}));
  if (space) item.name = *space + "::" + item.name;
  return {};
}

Status read_custom_call(const Json& json, ResponsesItem& item) {
  item.kind = ItemKind::kCall;
  std::string input;
  DI_CHECK_OK(decode_struct(json, kItemName,
                            {required("call_id", into(item.call_id, read_string)), required("name", into(item.name, read_string)),
                             required("input", into(input, read_string))}));
  item.arguments = compact_json(Json::object({{"input", std::move(input)}}));
  return {};
}

Status read_search_call(const Json& json, ResponsesItem& item) {
  item.kind = ItemKind::kCall;
  item.name = "tool_search";
  Json arguments;
  DI_CHECK_OK(
      decode_struct(json, kItemName,
                    {required("call_id", into(item.call_id, read_string)), required("arguments", into(arguments, read_json))}));
  item.arguments = compact_json(arguments);
  return {};
}

Status read_output(const Json& json, ResponsesItem& item) {
  static const Words kinds{"input_text", "input_image", "input_file"};
  item.kind = ItemKind::kOutput;
  return decode_struct(json, kItemName,
                       {required("call_id", into(item.call_id, read_string)), required("output", [&](const Json& value) {
                          return read_parts(value, "ResponsesOutputPart", kinds,
                                            "output should be a string or a list of output content parts", item);
                        })});
}

Status read_search_output(const Json& json, ResponsesItem& item) {
  item.kind = ItemKind::kToolSearchOutput;
  return decode_struct(json, kItemName,
                       {required("call_id", into(item.call_id, read_string)), required("tools", [&](const Json& list) {
                          return read_list(
                              list, [&](const Json& tool) { return read_responses_tool(tool, item.tools.emplace_back()); });
                        })});
}

Status read_function_tool(const Json& json, ResponsesTool& tool) {
  tool.kind = ToolKind::kFunction;
  return decode_struct(
      json, kToolName,
      {required("name", into(tool.name, read_string)), optional("description", into(tool.description, read_string)),
       optional("parameters", into(tool.parameters, read_json)), optional("strict", into(tool.strict, read_bool))});
}

Status read_custom_tool(const Json& json, ResponsesTool& tool) {
  tool.kind = ToolKind::kCustom;
  return decode_struct(json, kToolName, {required("name", into(tool.name, read_string))});
}

Status read_inner_tool(const Json& json, ResponsesTool& tool) {
  static const Words kinds{"function", "custom"};
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, "ResponsesNamespaceTool", "type", kinds, kind));
  tool.type = kinds[kind];
  return kind == 0 ? read_function_tool(json, tool) : read_custom_tool(json, tool);
}

Status read_search_tool(const Json& json, ResponsesTool& tool) {
  static const Words executions{"client", "server"};
  tool.kind = ToolKind::kToolSearch;
  tool.name = "tool_search";
  return decode_struct(
      json, kToolName,
      {optional("execution",
                [&](const Json& value) -> Status {
                  size_t index = 0;
                  DI_CHECK_OK(read_variant(value, executions, index));
                  tool.by_client = index == 0;
                  return {};
                }),
       optional("description", into(tool.description, read_string)), optional("parameters", into(tool.parameters, read_json))});
}

}  // namespace

Status read_responses_item(const Json& json, ResponsesItem& item) {
  const Json& type = json.at("type");
  if (type.is_null()) return json.find("role") ? read_message(json, item) : decode_error("invalid input item");
  if (!type.is_string()) return invalid_type(type, "variant identifier");
  const std::string& word = type.as_string();
  if (word == "message") return read_message(json, item);
  if (word == "reasoning") return read_reasoning(json, item);
  if (word == "function_call") return read_function_call(json, item);
  if (word == "custom_tool_call") return read_custom_call(json, item);
  if (word == "tool_search_call") return read_search_call(json, item);
  if (word == "function_call_output" || word == "custom_tool_call_output") return read_output(json, item);
  if (word == "tool_search_output") return read_search_output(json, item);
  return {};
}

Status read_responses_tool(const Json& json, ResponsesTool& tool) {
  if (!json.is_object())
    return json.is_array() ? missing_field("type") : invalid_type(json, "internally tagged enum ResponsesTool");
  const Json* type = json.find("type");
  if (!type) return missing_field("type");
  DI_CHECK_OK(type->is_string() ? Status{} : Status(invalid_type(*type, "variant identifier")));
  tool.type = type->as_string();
  if (tool.type == "function") return read_function_tool(json, tool);
  if (tool.type == "custom") return read_custom_tool(json, tool);
  if (tool.type == "tool_search") return read_search_tool(json, tool);
  if (tool.type == "namespace") {
    tool.kind = ToolKind::kNamespace;
    return decode_struct(json, kToolName,
                         {required("name", into(tool.name, read_string)),
                          optional("description", into(tool.description, read_string)), required("tools", [&](const Json& list) {
                            return read_list(
                                list, [&](const Json& inner) { return read_inner_tool(inner, tool.tools.emplace_back()); });
                          })});
  }
  if (tool.type != "web_search" && tool.type != "web_search_2025_08_26") return {};
  tool.kind = ToolKind::kWebSearch;
  tool.search_context_size = json.at("search_context_size");
  tool.user_location = json.at("user_location");
  return {};
}

}  // namespace deepinfer
