// api/responses/tools.h - the tools of a Responses body as the recipe knows them.
//
// Threads: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/profile.h"
#include "api/responses/body.h"

namespace deepinfer {

extern const std::string_view kApplyPatchDescription;

// Full name of a namespaced tool -> (namespace, name there).
using NamespaceNames = std::map<std::string, std::pair<std::string, std::string>>;

// Names and kinds; `path` is where the list stands, "tools" or "input[2].tools".
Status check_responses_tools(const std::vector<ResponsesTool>& tools, const std::string& path, const ApiOptions& options);

// Appends the functions these tools come to: members of a namespace as NAMESPACE::NAME (made unique by _1, _2 ...),
// apply_patch and a client's tool_search as functions, others left out.
void append_responses_tools(const std::vector<ResponsesTool>& tools, bool deferred, std::vector<ToolDefinition>& out,
                            NamespaceNames* names);

// What the model reads as the result of a tool search: a compact JSON list of the functions found.
std::string found_tools_text(const std::vector<ResponsesTool>& tools);

// The list as the response repeats it: as requested, nulls written, unknown types left out.
Json echo_responses_tools(const std::vector<ResponsesTool>& tools);

}  // namespace deepinfer
