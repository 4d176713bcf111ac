// api/messages/body.h - the shape of an Anthropic Messages body, decoded but not yet checked.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/common_rules.h"
#include "base/json.h"
#include "base/result.h"
#include "recipe/conversation.h"

namespace deepinfer {

struct MessagesBlock {
  enum class Kind {
    kText,
    kImage,
    kDocument,
    kThinking,
    kServerToolUse,
    kToolUse,
    kToolResult,
    kWebSearchResult,
    kToolAddition,
    kToolReference  // inside a tool result only
  };
  enum class Source { kBase64, kUrl, kFile };

  Kind kind = Kind::kText;
  std::string text;  // text, reasoning, image address or base64, media type of a document
  Source source = Source::kBase64;
  std::string media_type;
  std::string id;                      // tool_use, tool_result
  std::string name;                    // tool_use, tool_addition, tool_reference
  Json input;                          // tool_use
  std::vector<MessagesBlock> content;  // tool_result
};

struct MessagesTurn {
  Role role = Role::kUser;
  bool is_list = false;
  std::vector<MessagesBlock> blocks;  // a plain string is one text block
};

struct MessagesTool {
  std::string type;  // of a server tool, else empty
  bool has_type = false;
  ToolDefinition tool;
};

struct MessagesBody {
  std::string model;
  std::vector<MessagesTurn> turns;
  std::optional<std::string> system;
  ThinkingSwitch thinking = ThinkingSwitch::kUnset;
  std::optional<size_t> effort_word;
  std::optional<uint64_t> max_tokens;
  std::optional<float> temperature, top_p;
  std::vector<std::string> stop;
  std::optional<bool> stream;
  std::vector<MessagesTool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  bool any_tool = false;              // choice `any`, which profile official reads as auto
  Json one_call;                      // disable_parallel_tool_use, read in profile open only
  std::optional<std::string> chosen;  // a named tool
  std::optional<Json> format;         // output_config.format, which profile official ignores
  std::optional<std::string> user_id;
};

Result<MessagesBody> decode_messages_body(const Json& json);

}  // namespace deepinfer
