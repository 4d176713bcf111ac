#include "api/messages/body.h"

#include "api/decode.h"

namespace deepinfer {

namespace {

using Kind = MessagesBlock::Kind;
using Words = std::vector<std::string_view>;

constexpr std::string_view kBlockName = "MessagesContentBlock";

Status read_u32(const Json& json, uint64_t& out) { return read_unsigned(json, "u32", UINT32_MAX, out); }
Status read_u64(const Json& json, uint64_t& out) { return read_unsigned(json, "u64", UINT64_MAX, out); }
Status read_json(const Json& json, Json& out) {
  out = json;
  return {};
}

Status read_image_source(const Json& json, MessagesBlock& block) {
  static const Words kinds{"base64", "url", "file"};
  static const Words media_types{"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"};
  constexpr std::string_view kName = "MessagesImageSource";
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, kName, "type", kinds, kind));
  block.source = static_cast<MessagesBlock::Source>(kind);
  switch (block.source) {
    case MessagesBlock::Source::kUrl: return decode_struct(json, kName, {required("url", into(block.text, read_string))});
    case MessagesBlock::Source::kFile: return decode_struct(json, kName, {required("file_id", into(block.text, read_string))});
    case MessagesBlock::Source::kBase64: break;
  }
  return decode_struct(json, kName,
                       {required("media_type",
                                 [&](const Json& value) -> Status {
                                   size_t index = 0;
                                   DI_CHECK_OK(read_variant(value, media_types, index));
                                   block.media_type = media_types[index];
                                   return {};
                                 }),
                        required("data", into(block.text, read_string))});
}

// Documents are named, never read: only the media type counts.
Status read_document_source(const Json& json, MessagesBlock& block) {
  const Json& type = json.at("media_type");
  block.media_type = type.is_string() ? type.as_string() : "unknown";
  return {};
}

Status read_result_block(const Json& json, MessagesBlock& block);

Status read_result_content(const Json& json, MessagesBlock& block) {
  if (json.is_string()) {
    block.content.emplace_back().text = json.as_string();
    return {};
  }
  if (!json.is_array()) return decode_error("expected a string or a list");
  return read_list(json, [&](const Json& item) { return read_result_block(item, block.content.emplace_back()); });
}

Status read_addition(const Json& json, MessagesBlock& block) {
  static const Words kinds{"tool_reference"};
  size_t unused = 0;
  DI_CHECK_OK(read_tag(json, "MessagesToolAddition", "type", kinds, unused));
  return decode_struct(json, "MessagesToolAddition", {required("name", into(block.name, read_string))});
}

// The fields of a block whose kind is known.
Status read_block_fields(const Json& json, MessagesBlock& block) {
  const auto source = [&](Status (*read)(const Json&, MessagesBlock&)) {
    return required("source", [&block, read](const Json& value) { return read(value, block); });
  };
  switch (block.kind) {
    case Kind::kText: return decode_struct(json, kBlockName, {required("text", into(block.text, read_string))});
    case Kind::kImage: return decode_struct(json, kBlockName, {source(read_image_source)});
    case Kind::kDocument: return decode_struct(json, kBlockName, {source(read_document_source)});
    case Kind::kThinking: {
      std::optional<std::string> signature;
      return decode_struct(
          json, kBlockName,
          {required("thinking", into(block.text, read_string)), optional("signature", into(signature, read_string))});
    }
    case Kind::kToolUse:
      return decode_struct(json, kBlockName,
                           {required("id", into(block.id, read_string)), required("name", into(block.name, read_string)),
                            required("input", into(block.input, read_json))});
    case Kind::kToolResult: {
      std::optional<bool> is_error;
      return decode_struct(json, kBlockName,
                           {required("tool_use_id", into(block.id, read_string)),
                            optional("content", [&](const Json& value) { return read_result_content(value, block); }),
                            optional("is_error", into(is_error, read_bool))});
    }
    case Kind::kToolAddition:
      return decode_struct(json, kBlockName, {required("tool", [&](const Json& value) { return read_addition(value, block); })});
    case Kind::kToolReference: return decode_struct(json, kBlockName, {required("tool_name", into(block.name, read_string))});
    case Kind::kServerToolUse:
    case Kind::kWebSearchResult: break;
  }
  return {};
}

Status read_result_block(const Json& json, MessagesBlock& block) {
  static const Words kinds{"text", "image", "document", "tool_reference"};
  constexpr Kind kKinds[] = {Kind::kText, Kind::kImage, Kind::kDocument, Kind::kToolReference};
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, "MessagesToolResultContentBlock", "type", kinds, kind));
  block.kind = kKinds[kind];
  return read_block_fields(json, block);
}

Status read_block(const Json& json, MessagesBlock& block) {
  static const Words kinds{
      "text",         "image", "document", "thinking", "server_tool_use", "tool_use", "tool_result", "web_search_tool_result",
      "tool_addition"};
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, kBlockName, "type", kinds, kind));
  block.kind = static_cast<Kind>(kind);
  return read_block_fields(json, block);
}

Status read_content(const Json& json, MessagesTurn& turn) {
  if (json.is_string()) {
    turn.blocks.emplace_back().text = json.as_string();
    return {};
  }
  if (!json.is_array()) return decode_error("expected a string or a list");
  turn.is_list = true;
  return read_list(json, [&](const Json& item) { return read_block(item, turn.blocks.emplace_back()); });
}

Status read_turn(const Json& json, MessagesTurn& turn) {
  static const Words roles{"user", "assistant", "system"};
  constexpr Role kRoles[] = {Role::kUser, Role::kAssistant, Role::kSystem};
  if (!json.is_object()) return invalid_type(json, "adjacently tagged enum MessagesMessage");
  if (!json.find("role")) return missing_field("role");
  size_t role = 0;
  DI_CHECK_OK(read_variant(json.at("role"), roles, role));
  turn.role = kRoles[role];
  return decode_struct(json, "MessagesMessage",
                       {required("content", [&](const Json& value) { return read_content(value, turn); })});
}

Status read_system(const Json& json, std::optional<std::string>& system) {
  static const Words kinds{"text"};
  if (json.is_string()) {
    system = json.as_string();
    return {};
  }
  if (!json.is_array()) return decode_error("expected a string or a list");
  system = "";
  size_t index = 0;
  return read_list(json, [&](const Json& item) -> Status {
    size_t unused = 0;
    std::string text;
    DI_CHECK_OK(read_tag(item, "MessagesSystemBlock", "type", kinds, unused));
    DI_CHECK_OK(decode_struct(item, "MessagesSystemBlock", {required("text", into(text, read_string))}));
    *system += (index++ ? "\n\n" : "") + text;
    return {};
  });
}

Status read_thinking(const Json& json, ThinkingSwitch& thinking) {
  static const Words types{"adaptive", "enabled", "disabled"};
  std::optional<uint64_t> budget;
  return decode_struct(json, "MessagesThinking",
                       {required("type",
                                 [&](const Json& value) -> Status {
                                   size_t index = 0;
                                   DI_CHECK_OK(read_variant(value, types, index));
                                   thinking = index == 2 ? ThinkingSwitch::kOff : ThinkingSwitch::kOn;
                                   return {};
                                 }),
                        optional("budget_tokens", into(budget, read_u64))});
}

Status read_tool(const Json& json, MessagesTool& tool) {
  const Json* name = json.find("name");
  if (!name) return missing_field("name");
  tool.has_type = json.find("type") != nullptr;
  if (tool.has_type) DI_CHECK_OK(read_string(json.at("type"), tool.type));
  const auto field = [&](std::string_view key, const FieldReader& read) -> Status {
    const Json& value = json.at(key);
    if (value.is_null()) return {};
    const Status status = read(value);
    return status ? Status{} : within_field(key, status.error());
  };
  ToolDefinition& definition = tool.tool;
  if (const Status status = read_string(*name, definition.name); !status) return within_field("name", status.error());
  std::optional<bool> strict, deferred;
  DI_CHECK_OK(field("description", into(definition.description, read_string)));
  DI_CHECK_OK(field("strict", into(strict, read_bool)));
  DI_CHECK_OK(field("defer_loading", into(deferred, read_bool)));
  definition.strict = strict;
  definition.parameters = json.at("input_schema");
  definition.deferred = deferred.value_or(false);
  return {};
}

Status read_choice(const Json& json, MessagesBody& body) {
  static const Words kinds{"auto", "any", "tool", "none"};
  size_t kind = 0;
  DI_CHECK_OK(read_tag(json, "MessagesToolChoice", "type", kinds, kind));
  body.any_tool = kind == 1;
  body.one_call = json.at("disable_parallel_tool_use");
  if (kind == 3) body.choice = ToolChoice::kNone;
  if (kind != 2) return {};
  body.choice = ToolChoice::kRequired;
  return decode_struct(json, "MessagesToolChoice", {required("name", into(body.chosen, read_string))});
}

}  // namespace

Result<MessagesBody> decode_messages_body(const Json& json) {
  MessagesBody body;
  const auto read_turns = [&](const Json& list) {
    return read_list(list, [&](const Json& item) { return read_turn(item, body.turns.emplace_back()); });
  };
  const auto read_tools = [&](const Json& list) {
    return read_list(list, [&](const Json& item) { return read_tool(item, body.tools.emplace_back()); });
  };
  const auto read_effort = [&](const Json& value) {
    return decode_struct(
        value, "MessagesOutputConfig",
        {optional("effort", [&](const Json& word) { return read_variant(word, effort_words(), body.effort_word.emplace()); }),
         optional("format", [&](const Json& format) { return read_json(format, body.format.emplace()); })});
  };
  const auto read_stop = [&](const Json& list) {
    return read_list(list, [&](const Json& item) { return read_string(item, body.stop.emplace_back()); });
  };
  const auto read_metadata = [&](const Json& value) {
    return decode_struct(value, "MessagesMetadata", {optional("user_id", into(body.user_id, read_string))});
  };
  DI_CHECK_OK(decode_struct(
      json, "MessagesRequest",
      {required("model", into(body.model, read_string)), required("messages", read_turns),
       optional("system", [&](const Json& value) { return read_system(value, body.system); }),
       optional("thinking", into(body.thinking, read_thinking)), optional("output_config", read_effort),
       optional("max_tokens", into(body.max_tokens, read_u32)), optional("temperature", into(body.temperature, read_f32)),
       optional("top_p", into(body.top_p, read_f32)), optional("stop_sequences", read_stop),
       optional("stream", into(body.stream, read_bool)), optional("tools", read_tools),
       optional("tool_choice", [&](const Json& value) { return read_choice(value, body); }),
       optional("metadata", read_metadata)}));
  return body;
}

}  // namespace deepinfer
