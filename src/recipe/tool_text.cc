#include "recipe/tool_text.h"

#include "recipe/python_json.h"

namespace deepinfer {

namespace {

constexpr std::string_view kToolSectionHead =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolSectionTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

std::string tool_line(const ToolDefinition& tool) {
  Json line = Json::object();
  line.set("name", tool.name);
  line.set("description", tool.description.value_or(""));
  line.set("parameters", tool.parameters ? *tool.parameters : Json::object());
  return python_json(line);
}

std::string tool_lines(const std::vector<ToolDefinition>& tools, bool with_deferred) {
  std::string out;
  bool first = true;
  for (const ToolDefinition& tool : tools) {
    if (tool.deferred && !with_deferred) continue;
    if (!first) out += '\n';
    first = false;
    out += tool_line(tool);
  }
  return out;
}

void add_parameter(Prompt& prompt, std::string_view name, bool is_string, std::string_view value) {
  prompt.add_template(std::string(call_markup::kParameter) + "\"");
  prompt.add_text(name);
  prompt.add_text("\"" + std::string(is_string ? call_markup::kText : call_markup::kJson));
  prompt.add_text(value);
  prompt.add_template(call_markup::kEndParameter);
}

void add_parameters(Prompt& prompt, const std::string& arguments) {
  Result<Json> parsed = Json::parse(arguments, {.max_depth = 127});
  // Numbers beyond a double do not parse in the reference, so such arguments are shown raw as well.
  if (!parsed || !parsed->is_object() || !numbers_fit_double(*parsed)) return add_parameter(prompt, "arguments", true, arguments);
  parsed->merge_duplicate_keys();
  bool first = true;
  for (const auto& [key, value] : parsed->members()) {
    if (!first) prompt.add_text("\n");
    first = false;
    add_parameter(prompt, key, value.is_string(), value.is_string() ? value.as_string() : python_json(value));
  }
}

}  // namespace

void add_tool_section(Prompt& prompt, const std::vector<ToolDefinition>& tools) {
  prompt.add_text("\n\n");
  prompt.add_template(kToolSectionHead);
  prompt.add_text(tool_lines(tools, false));
  prompt.add_template(kToolSectionTail);
}

void add_announced_tools(Prompt& prompt, const std::vector<ToolDefinition>& tools) {
  prompt.add_text("\n\n### Updated Tool Schemas\n\n");
  prompt.add_text(tool_lines(tools, true));
}

void add_response_format(Prompt& prompt, const ResponseFormat& format) {
  const bool object = format.kind == ResponseFormat::Kind::kJsonObject;
  if (!object && format.kind != ResponseFormat::Kind::kJsonSchema) return;
  prompt.add_text("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
  prompt.add_text(object ? std::string(R"({"type": "json_object"})") : python_json(format.schema));
}

void add_tool_calls(Prompt& prompt, const std::vector<ToolCall>& calls) {
  add_open_tool_calls(prompt);
  for (const ToolCall& call : calls) {
    prompt.add_template(call_markup::kCall);
    prompt.add_text(call.name);
    prompt.add_text(call_markup::kNamed);
    add_parameters(prompt, call.arguments);
    prompt.add_template(call_markup::kEndCall);
  }
  prompt.add_template(call_markup::kClose);
}

void add_open_tool_calls(Prompt& prompt) {
  prompt.add_template(std::string(call_markup::kLead) + std::string(call_markup::kOpen));
}

}  // namespace deepinfer
