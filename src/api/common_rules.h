// api/common_rules.h - rules of a request that all wires share: models, numbers, stop strings, thinking, tools.
//
// Each function checks one rule and gives the error text of the official service; the order of the checks belongs to the
// dialect.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/profile.h"
#include "base/result.h"
#include "recipe/conversation.h"

namespace deepinfer {

Status check_model(const std::string& model, const ApiOptions& options);

Status check_temperature(std::optional<float> temperature);
Status check_top_p(std::optional<float> top_p);
Status check_max_tokens(std::optional<uint64_t> max_tokens, bool thinking, const ApiOptions& options);
// A penalty in [-2, 2]; `name` is the field's.
Status check_penalty(std::string_view name, std::optional<float> value);
// `is_list`: the client sent a list, so errors name an index.
Status check_stop(const std::vector<std::string>& stop, bool is_list);

// The words of reasoning effort, shared by the wires: index into effort_words().
const std::vector<std::string_view>& effort_words();
enum class ThinkingSwitch { kUnset, kOn, kOff };
struct ThinkingSetting {
  bool on = true;
  std::optional<Effort> effort;
};
ThinkingSetting resolve_thinking(ThinkingSwitch wanted, std::optional<size_t> effort_word, bool default_on);

// Tools as declared, before a choice is applied.
Status check_tool_name(const std::string& name, const std::string& path);
Status check_tool_names_unique(const std::vector<ToolDefinition>& tools);
// Checks every schema; strict ones are replaced by their normal form.
Status check_tool_schemas(std::vector<ToolDefinition>& tools, const ProfileRules& rules);
// The same for a wire whose strict tools may use all of JSON Schema: they stay as they are.
Status check_plain_schemas(const std::vector<ToolDefinition>& tools);
// Which profiles take strict tools beside others, or beside an answer format.
Status check_strict_mix(const std::vector<ToolDefinition>& tools, bool has_format, const ProfileRules& rules);

// Applies the client's choice to the declared tools: fills conversation.tools and tool_choice. `named` is the one tool that
// is to be called.
Status apply_tool_choice(Conversation& conversation, const std::vector<ToolDefinition>& declared, ToolChoice choice,
                         const std::optional<std::string>& named, const ProfileRules& rules);

// Of the tools that the choice left, only these may be called; nothing is changed where none are named.
Status keep_allowed_tools(Conversation& conversation, const std::vector<std::string>& allowed);
// How many calls one answer may have at most, where that is said.
Status limit_calls(Conversation& conversation, std::optional<bool> parallel, std::optional<uint64_t> max_calls);

// The answer format: a valid schema; fills constraint_schema.
Status check_response_schema(ResponseFormat& format, bool strict, const ProfileRules& rules);
bool mentions_json(const std::vector<Message>& messages);

// With reject_missing_reasoning: every assistant turn after the last user message must carry its reasoning.
bool lacks_reasoning(const Conversation& conversation, bool tools_declared);
// While thinking, an assistant turn without reasoning has an empty one; otherwise reasoning is of no use.
void settle_reasoning(Conversation& conversation);

}  // namespace deepinfer
