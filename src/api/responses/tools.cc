#include "api/responses/tools.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "recipe/python_json.h"

namespace deepinfer {

namespace {

using Kind = ResponsesTool::Kind;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Status check_namespace(const ResponsesTool& space, const std::string& path) {
  DI_CHECK_OK(check_tool_name(space.name, path + ".name"));
  for (size_t j = 0; j < space.tools.size(); ++j) {
    const ResponsesTool& tool = space.tools[j];
    const std::string place = fmt::format("{}.tools[{}]", path, j);
    if (tool.kind == Kind::kCustom) {
      return invalid_argument(fmt::format(
          "Currently custom tools are not allowed inside a namespace. Found custom tool '{}' in {}.", tool.name, place));
    }
    DI_CHECK_OK(check_tool_name(tool.name, place + ".name"));
  }
  std::unordered_set<std::string_view> names;
  for (const ResponsesTool& tool : space.tools) {
    if (!names.insert(tool.name).second) return invalid_argument("Tool names within a namespace must be unique.");
  }
  return {};
}

ToolDefinition function_of(const ResponsesTool& tool, bool deferred) {
  return ToolDefinition{tool.name, tool.description, tool.parameters, tool.strict, deferred};
}

ToolDefinition apply_patch(bool deferred) {
  constexpr std::string_view kSchema =
      R"({"type":"object","additionalProperties":false,"properties":{"input":{"type":"string","description":"The entire contents of the apply_patch command (the *** Begin Patch ... *** End Patch envelope)."}},"required":["input"]})";
  return ToolDefinition{"apply_patch", std::string(kApplyPatchDescription), *Json::parse(kSchema), std::nullopt, deferred};
}

std::string unique_name(const std::string& wanted, const std::vector<ToolDefinition>& taken) {
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(taken.begin(), taken.end(), [&](const ToolDefinition& tool) { return tool.name == name; });
  };
  std::string name = wanted;
  for (int number = 1; is_taken(name); ++number) name = fmt::format("{}_{}", wanted, number);
  return name;
}

void append_namespace(const ResponsesTool& space, bool deferred, std::vector<ToolDefinition>& out, NamespaceNames* names) {
  for (const ResponsesTool& tool : space.tools) {
    ToolDefinition function = function_of(tool, deferred);
    function.name = unique_name(fmt::format("{}::{}", space.name, tool.name), out);
    if (space.description) function.description = *space.description + "\n" + tool.description.value_or("");
    if (names) names->emplace(function.name, std::make_pair(space.name, tool.name));
    out.push_back(std::move(function));
  }
}

void append_found(const ResponsesTool& tool, const ResponsesTool* space, Json& out) {
  Json form = Json::object({{"type", "function"},
                            {"name", tool.name},
                            {"description", or_null(tool.description)},
                            {"parameters", or_null(tool.parameters)},
                            {"strict", or_null(tool.strict)}});
  if (space) {
    form.set("namespace", Json::object({{"name", space->name}, {"description", or_null(space->description)}}));
  }
  out.push_back(std::move(form));
}

Json echo_function(const ResponsesTool& tool) {
  return Json::object({{"type", "function"},
                       {"name", tool.name},
                       {"description", or_null(tool.description)},
                       {"parameters", or_null(tool.parameters)},
                       {"strict", or_null(tool.strict)}});
}

}  // namespace

Status check_responses_tools(const std::vector<ResponsesTool>& tools, const std::string& path, const ApiOptions& options) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const ResponsesTool& tool = tools[i];
    const std::string place = fmt::format("{}[{}]", path, i);
    if (tool.kind == Kind::kFunction) DI_CHECK_OK(check_tool_name(tool.name, place + ".name"));
    if (tool.kind == Kind::kNamespace) DI_CHECK_OK(check_namespace(tool, place));
    if (tool.kind == Kind::kCustom && tool.name != "apply_patch") {
      return invalid_argument(fmt::format("Unsupported custom tool: '{}'. Only 'apply_patch' is supported.", tool.name));
    }
    if (tool.kind == Kind::kWebSearch && options.responses_rejects_web_search) {
      return invalid_argument("Server tools are not supported");
    }
  }
  return {};
}

void append_responses_tools(const std::vector<ResponsesTool>& tools, bool deferred, std::vector<ToolDefinition>& out,
                            NamespaceNames* names) {
  for (const ResponsesTool& tool : tools) {
    switch (tool.kind) {
      case Kind::kFunction: out.push_back(function_of(tool, deferred)); break;
      case Kind::kCustom: out.push_back(apply_patch(deferred)); break;
      case Kind::kNamespace: append_namespace(tool, deferred, out, names); break;
      case Kind::kToolSearch:
        if (tool.by_client) out.push_back(function_of(tool, deferred));
        break;
      case Kind::kWebSearch:
      case Kind::kUnknown: break;
    }
  }
}

std::string found_tools_text(const std::vector<ResponsesTool>& tools) {
  Json list = Json::array();
  for (const ResponsesTool& tool : tools) {
    if (tool.kind == Kind::kFunction) append_found(tool, nullptr, list);
    if (tool.kind != Kind::kNamespace) continue;
    for (const ResponsesTool& inner : tool.tools) append_found(inner, &tool, list);
  }
  return compact_json(list);
}

Json echo_responses_tools(const std::vector<ResponsesTool>& tools) {
  Json out = Json::array();
  for (const ResponsesTool& tool : tools) {
    switch (tool.kind) {
      case Kind::kFunction: out.push_back(echo_function(tool)); break;
      case Kind::kCustom: out.push_back(Json::object({{"type", "custom"}, {"name", tool.name}})); break;
      case Kind::kNamespace: {
        Json inner = Json::array();
        for (const ResponsesTool& member : tool.tools) inner.push_back(echo_function(member));
        out.push_back(Json::object({{"type", "namespace"},
                                    {"name", tool.name},
                                    {"description", or_null(tool.description)},
                                    {"tools", std::move(inner)}}));
        break;
      }
      case Kind::kToolSearch:
        out.push_back(Json::object({{"type", "tool_search"},
                                    {"execution", tool.by_client ? "client" : "server"},
                                    {"description", or_null(tool.description)},
                                    {"parameters", or_null(tool.parameters)}}));
        break;
      case Kind::kWebSearch:
        out.push_back(Json::object(
            {{"type", tool.type}, {"search_context_size", tool.search_context_size}, {"user_location", tool.user_location}}));
        break;
      case Kind::kUnknown: break;
    }
  }
  return out;
}

}  // namespace deepinfer
