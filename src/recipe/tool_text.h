// recipe/tool_text.h - what the prompt says about tools and answer formats.
//
// The section that lists tools, the later announcement of more, the demand for a response format, and tool calls written
// in the markup the model was trained on.
#pragma once

#include <string>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/render.h"

namespace deepinfer {

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
