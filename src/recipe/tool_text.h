// recipe/tool_text.h - what the prompt says about tools and answer formats.
//
// The section that lists tools, the later announcement of more, the demand for a response format, and tool calls written
// in the markup the model was trained on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/render.h"

namespace deepinfer {

// How calls are spelled, both in prompts and by the model. Line feeds are part of it.
namespace call_markup {
inline constexpr std::string_view kLead = "\n\n";  // between an answer and its calls
inline constexpr std::string_view kOpen = "<｜DSML｜ calls>\n";
inline constexpr std::string_view kCall = "<｜DSML｜ invoke name=\"";
inline constexpr std::string_view kNamed = "\">\n";
inline constexpr std::string_view kParameter = "<｜DSML｜ parameter name=";  // and the name in quotes
inline constexpr std::string_view kText = " string=\"true\">";
inline constexpr std::string_view kJson = " string=\"false\">";
inline constexpr std::string_view kEndParameter = "</｜DSML｜ parameter>";
inline constexpr std::string_view kEndCall = "\n</｜DSML｜ invoke>\n";
inline constexpr std::string_view kClose = "</｜DSML｜ calls>";
// What the parser looks for.
inline constexpr std::string_view kMark = "<｜DSML｜";
inline constexpr std::string_view kEndMark = "</｜DSML｜";
}  // namespace call_markup

// The section under the first system message; deferred tools are left out.
void add_tool_section(Prompt& prompt, const std::vector<ToolDefinition>& tools);
void add_announced_tools(Prompt& prompt, const std::vector<ToolDefinition>& tools);
// Nothing for text and regex.
void add_response_format(Prompt& prompt, const ResponseFormat& format);
// The block of calls of one assistant turn, blank line in front included.
void add_tool_calls(Prompt& prompt, const std::vector<ToolCall>& calls);
// The opening of such a block: the answer must start with a call.
void add_open_tool_calls(Prompt& prompt);

}  // namespace deepinfer
