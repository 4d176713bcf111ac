// api/chat/body.h - the shape of a Chat Completions body, decoded but not yet checked.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/common_rules.h"
#include "api/profile.h"
#include "base/json.h"
#include "base/result.h"
#include "core/types.h"
#include "recipe/conversation.h"

namespace deepinfer {

struct ChatPart {
  enum class Kind { kText, kImageUrl, kFile };
  Kind kind = Kind::kText;
  std::string text;  // or the image's URL
  std::string detail = "high";
  std::optional<std::string> file_id, file_data, filename;
};

struct ChatContent {
  bool is_list = false;
  std::vector<ChatPart> parts;  // a plain string is one text part
};

struct ChatMessage {
  Role role = Role::kUser;
  std::optional<ChatContent> content;
  std::optional<std::string> reasoning;
  std::optional<std::vector<ToolCall>> tool_calls;
  std::optional<bool> prefix;
  std::string tool_call_id;
};

struct ChatToolChoice {
  ToolChoice choice = ToolChoice::kAuto;
  std::optional<std::string> name;   // a named function
  std::vector<std::string> allowed;  // the only ones that may be called; empty = all
};

struct ChatBody {
  std::string model;
  std::vector<ChatMessage> messages;
  ThinkingSwitch thinking = ThinkingSwitch::kUnset;
  std::optional<size_t> effort_word;
  std::optional<uint64_t> max_tokens, max_completion_tokens, num_answers, seed, top_logprobs;
  std::optional<float> temperature, top_p, frequency_penalty, presence_penalty;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::string> stop;
  bool stop_is_list = false;
  std::optional<bool> stream, logprobs, include_usage;
  bool has_stream_options = false;
  std::vector<ToolDefinition> tools;
  std::optional<ChatToolChoice> tool_choice;
  std::optional<bool> parallel_tool_calls;
  std::optional<ResponseFormat> format;
  bool format_is_strict = false;
  std::optional<std::string> grammar;  // EBNF, of a format of that type
};

Result<ChatBody> decode_chat_body(const Json& json, const ProfileRules& rules);

}  // namespace deepinfer
