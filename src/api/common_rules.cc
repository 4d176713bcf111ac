#include "api/common_rules.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "api/schema_check.h"
#include "api/strict_schema.h"

namespace deepinfer {

namespace {

bool is_tool_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool contains_json_word(std::string_view text) {
  constexpr std::string_view kWord = "json";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), same) != text.end();
}

}  // namespace

Status check_model(const std::string& model, const ApiOptions& options) {
  std::vector<std::string> names = options.models;
  std::sort(names.begin(), names.end());
  if (std::binary_search(names.begin(), names.end(), model)) return {};
  const std::string text = fmt::format("The supported API model names are {}, but you passed {}.", fmt::join(names, ", "), model);
  return profile_rules(options.profile).model_not_found ? not_found(text) : invalid_argument(text);
}

Status check_temperature(std::optional<float> temperature) {
  if (!temperature || (*temperature >= 0.0f && *temperature <= 2.0f)) return {};
  return invalid_argument("Invalid temperature value, the valid range of temperature is [0, 2]");
}

Status check_top_p(std::optional<float> top_p) {
  if (!top_p || (*top_p > 0.0f && *top_p <= 1.0f)) return {};
  return invalid_argument("Invalid top_p value, the valid range of top_p is (0, 1.0]");
}

Status check_max_tokens(std::optional<uint64_t> max_tokens, bool thinking, const ApiOptions& options) {
  const auto bound = static_cast<uint64_t>(thinking ? options.max_tokens_thinking : options.max_tokens_plain);
  if (!max_tokens || (*max_tokens >= 1 && *max_tokens <= bound)) return {};
  return invalid_argument(fmt::format("Invalid max_tokens value, the valid range of max_tokens is [1, {}]", bound));
}

Status check_penalty(std::string_view name, std::optional<float> value) {
  if (!value || (*value >= -2.0f && *value <= 2.0f)) return {};
  return invalid_argument(fmt::format("Invalid {0} value, the valid range of {0} is [-2, 2]", name));
}

Status check_stop(const std::vector<std::string>& stop, bool is_list) {
  if (stop.size() > 16) return invalid_argument(fmt::format("Stop string array too long: {}", stop.size()));
  for (size_t i = 0; i < stop.size(); ++i) {
    if (!stop[i].empty()) continue;
    return invalid_argument(
        fmt::format("Invalid 'stop{}': empty string. Expected a string with minimum length 1, but got an empty "
                    "string instead.",
                    is_list ? fmt::format("[{}]", i) : ""));
  }
  return {};
}

const std::vector<std::string_view>& effort_words() {
  static const std::vector<std::string_view> words{"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"};
  return words;
}

ThinkingSetting resolve_thinking(ThinkingSwitch wanted, std::optional<size_t> effort_word, bool default_on) {
  constexpr Effort kEfforts[] = {Effort::kHigh, Effort::kLow,   Effort::kLow, Effort::kHigh,
                                 Effort::kHigh, Effort::kXhigh, Effort::kMax, Effort::kMax};
  const bool effort_off = effort_word && *effort_word == 0;
  bool on = default_on;
  if (effort_word) on = !effort_off;
  if (wanted != ThinkingSwitch::kUnset) on = wanted == ThinkingSwitch::kOn;
  if (!on) return {false, std::nullopt};
  return {true, effort_word ? kEfforts[*effort_word] : Effort::kHigh};
}

Status check_tool_name(const std::string& name, const std::string& path) {
  if (name.empty()) {
    return invalid_argument(fmt::format(
        "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty string instead.", path));
  }
  if (!std::all_of(name.begin(), name.end(), is_tool_name_character)) {
    return invalid_argument(
        fmt::format("Invalid '{}': string does not match pattern. Expected a string that matches the pattern "
                    "'^[a-zA-Z0-9_-]+$'.",
                    path));
  }
  if (name.size() > 128) {
    return invalid_argument(
        fmt::format("Invalid '{}': string too long. Expected a string with maximum length 128, but got a string "
                    "with length {} instead.",
                    path, name.size()));
  }
  return {};
}

Status check_tool_names_unique(const std::vector<ToolDefinition>& tools) {
  std::unordered_set<std::string_view> names;
  for (const ToolDefinition& tool : tools) {
    if (!names.insert(tool.name).second) return invalid_argument("Tool names must be unique.");
  }
  return {};
}

Status check_tool_schemas(std::vector<ToolDefinition>& tools, const ProfileRules& rules) {
  for (ToolDefinition& tool : tools) {
    if (!tool.parameters) continue;
    if (tool.strict.value_or(false)) {
      tool.enforced = strict_constraint(*tool.parameters);
      auto normal = normalise_strict(*tool.parameters, StrictUse::kToolParameters, rules.strict_refs_in_any_of);
      // What the recipe's strict form cannot say is shown as it is written and enforced all the same.
      if (!normal && (!rules.strict_refs_in_any_of || !check_tool_schema(tool.name, *tool.parameters))) return normal.error();
      if (normal) tool.parameters = *std::move(normal);
    } else {
      DI_CHECK_OK(check_tool_schema(tool.name, *tool.parameters));
    }
  }
  return {};
}

Status check_plain_schemas(const std::vector<ToolDefinition>& tools) {
  for (const ToolDefinition& tool : tools) {
    if (tool.parameters) DI_CHECK_OK(check_tool_schema(tool.name, *tool.parameters));
  }
  return {};
}

Status check_strict_mix(const std::vector<ToolDefinition>& tools, bool has_format, const ProfileRules& rules) {
  if (rules.strict_beside_others) return {};
  const auto is_strict = [](const ToolDefinition& tool) { return tool.strict.value_or(false); };
  const auto num_strict = std::count_if(tools.begin(), tools.end(), is_strict);
  if (num_strict == 0) return {};
  if (num_strict != static_cast<std::ptrdiff_t>(tools.size())) {
    return invalid_argument("Cannot use strict tool with non-strict tool in the same request");
  }
  if (has_format) return invalid_argument("response_format should not be used with tools");
  return {};
}

Status apply_tool_choice(Conversation& conversation, const std::vector<ToolDefinition>& declared, ToolChoice choice,
                         const std::optional<std::string>& named, const ProfileRules& rules) {
  conversation.tool_choice = declared.empty() && choice != ToolChoice::kNone ? ToolChoice::kAuto : choice;
  if (declared.empty()) return {};
  std::vector<ToolDefinition>& tools = conversation.tools;
  if (choice != ToolChoice::kNone) tools = declared;
  if (named) {
    const auto found = std::find_if(tools.begin(), tools.end(), [&](const ToolDefinition& tool) { return tool.name == *named; });
    if (found == tools.end()) {
      return invalid_argument(
          fmt::format("Invalid value for 'tool_call': no function named '{}' was specified in the 'tools' parameter.", *named));
    }
    tools = {ToolDefinition(*found)};
  }
  if (conversation.tool_choice == ToolChoice::kRequired && conversation.thinking && !rules.tool_choice_with_thinking) {
    return invalid_argument("Thinking mode does not support this tool_choice");
  }
  return {};
}

Status keep_allowed_tools(Conversation& conversation, const std::vector<std::string>& allowed) {
  if (allowed.empty() || conversation.tool_choice == ToolChoice::kNone) return {};
  std::vector<ToolDefinition>& tools = conversation.tools;
  for (const std::string& name : allowed) {
    if (std::any_of(tools.begin(), tools.end(), [&](const ToolDefinition& tool) { return tool.name == name; })) continue;
    return invalid_argument(fmt::format("Invalid value for 'tool_choice': no tool named '{}' was specified in 'tools'.", name));
  }
  const auto barred = [&](const ToolDefinition& tool) {
    return std::find(allowed.begin(), allowed.end(), tool.name) == allowed.end();
  };
  conversation.only_listed = true;
  std::erase_if(tools, barred);
  return {};
}

Status limit_calls(Conversation& conversation, std::optional<bool> parallel, std::optional<uint64_t> max_calls) {
  constexpr uint64_t kMost = 128;
  if (max_calls && (*max_calls < 1 || *max_calls > kMost)) {
    return invalid_argument(fmt::format("Invalid max_tool_calls value, the valid range of max_tool_calls is [1, {}]", kMost));
  }
  if (max_calls) conversation.max_calls = static_cast<int64_t>(*max_calls);
  if (parallel && !*parallel) conversation.max_calls = 1;
  return {};
}

Status check_response_schema(ResponseFormat& format, bool strict, const ProfileRules& rules) {
  if (format.kind != ResponseFormat::Kind::kJsonSchema) return {};
  if (strict) {
    format.enforced = strict_constraint(format.schema);
    auto normal = normalise_strict(format.schema, StrictUse::kAnswerFormat, rules.strict_refs_in_any_of);
    if (!normal && (!rules.strict_refs_in_any_of || !check_schema(format.schema))) return normal.error();
    format.constraint_schema = normal ? *std::move(normal) : format.schema;
    return {};
  }
  if (const Status valid = check_schema(format.schema); !valid) {
    return invalid_argument("Invalid json schema: " + valid.error().message);
  }
  format.constraint_schema = format.schema;
  return {};
}

bool mentions_json(const std::vector<Message>& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const Message& message) { return contains_json_word(message.content.text); });
}

bool lacks_reasoning(const Conversation& conversation, bool tools_declared) {
  const std::vector<Message>& messages = conversation.messages;
  size_t begin = messages.size();
  while (begin > 0 && messages[begin - 1].role != Role::kUser) --begin;
  bool has_calls = tools_declared;
  bool missing = false;
  for (size_t i = begin; i < messages.size(); ++i) {
    if (messages[i].role != Role::kAssistant) continue;
    has_calls = has_calls || !messages[i].tool_calls.empty();
    missing = missing || !messages[i].reasoning;
  }
  return has_calls && missing;
}

void settle_reasoning(Conversation& conversation) {
  for (Message& message : conversation.messages) {
    if (message.role != Role::kAssistant) continue;
    if (!conversation.thinking) {
      message.reasoning.reset();
    } else if (!message.reasoning) {
      message.reasoning = "";
    }
  }
}

}  // namespace deepinfer
