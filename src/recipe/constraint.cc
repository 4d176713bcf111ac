#include "recipe/constraint.h"

#include "recipe/python_json.h"

namespace deepinfer {

namespace {

Json tool_json(const ToolDefinition& tool) {
  Json function = Json::object();
  function.set("name", tool.name);
  function.set("description", tool.description ? Json(*tool.description) : Json());
  function.set("parameters", tool.parameters ? *tool.parameters : Json::object());
  function.set("strict", tool.strict ? Json(*tool.strict) : Json());
  Json out = Json::object();
  out.set("type", "function");
  out.set("function", std::move(function));
  if (tool.deferred) out.set("defer_loading", true);
  return out;
}

}  // namespace

const char* constraint_name(OutputConstraint::Kind kind) {
  switch (kind) {
    case OutputConstraint::Kind::kToolCall: return "tool_call";
    case OutputConstraint::Kind::kToolCallRequired: return "tool_call_required";
    case OutputConstraint::Kind::kJson: return "json";
    case OutputConstraint::Kind::kRegex: return "regex";
  }
  return "unknown";
}

std::optional<OutputConstraint> output_constraint(const Conversation& conversation) {
  if (conversation.tools_active()) {
    Json tools = Json::array();
    for (const ToolDefinition& tool : conversation.tools) tools.push_back(tool_json(tool));
    const bool required = conversation.tool_choice == ToolChoice::kRequired;
    return OutputConstraint{required ? OutputConstraint::Kind::kToolCallRequired : OutputConstraint::Kind::kToolCall,
                            compact_json(tools)};
  }
  switch (conversation.format.kind) {
    case ResponseFormat::Kind::kText: return std::nullopt;
    case ResponseFormat::Kind::kJsonObject: return OutputConstraint{OutputConstraint::Kind::kJson, ""};
    case ResponseFormat::Kind::kJsonSchema:
      return OutputConstraint{OutputConstraint::Kind::kJson, compact_json(conversation.format.constraint_schema)};
    case ResponseFormat::Kind::kRegex: return OutputConstraint{OutputConstraint::Kind::kRegex, conversation.format.regex};
  }
  return std::nullopt;
}

}  // namespace deepinfer
