// api/responses/body.h - the shape of an OpenAI Responses body, decoded but not yet checked.
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

struct ResponsesTool {
  enum class Kind { kFunction, kCustom, kNamespace, kToolSearch, kWebSearch, kUnknown };
  Kind kind = Kind::kUnknown;
  std::string type;  // as written
  std::string name;
  std::optional<std::string> description;
  std::optional<Json> parameters;
  std::optional<bool> strict;
  bool by_client = false;                   // tool_search: the client runs it
  std::vector<ResponsesTool> tools;         // of a namespace
  Json search_context_size, user_location;  // web search, for the echo
};

struct ResponsesPart {
  enum class Kind { kText, kImage, kFile };
  Kind kind = Kind::kText;
  std::string text;
  std::string image_url, file_id;  // empty = absent
  std::string detail = "high";
};

struct ResponsesItem {
  enum class Kind { kMessage, kReasoning, kCall, kOutput, kToolSearchOutput, kUnknown };
  Kind kind = Kind::kUnknown;
  Role role = Role::kUser;
  std::vector<ResponsesPart> parts;  // message, output
  std::string text;                  // reasoning
  std::string call_id, name, arguments;
  std::vector<ResponsesTool> tools;  // tool_search_output
};

struct ResponsesBody {
  std::string model;
  bool has_input = false, input_is_list = false;
  std::vector<ResponsesItem> items;
  std::optional<std::string> instructions;
  std::optional<uint64_t> max_output_tokens, top_logprobs;
  std::optional<float> temperature, top_p;
  std::optional<size_t> effort_word;
  std::optional<std::string> summary;
  ResponseFormat format;
  bool format_is_strict = false;
  std::optional<std::string> format_name, format_description;
  std::optional<bool> format_strict;  // as written
  std::vector<ResponsesTool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::optional<std::string> chosen;  // a named tool
  Json choice_echo = "auto";
  std::vector<std::string> allowed;  // the only tools that may be called; empty = all
  std::optional<bool> parallel_tool_calls;
  std::optional<uint64_t> max_tool_calls;
  std::optional<bool> stream;
  std::optional<std::string> user;
};

Result<ResponsesBody> decode_responses_body(const Json& json);
// What profile `open` reads of how many calls there may be, and of which tools.
Status read_call_limits(const Json& json, ResponsesBody& body);

}  // namespace deepinfer
