#include "lab/recipe_forms.h"

#include "recipe/python_json.h"

namespace deepinfer {

namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json strings(const std::vector<std::string>& values) {
  Json out = Json::array();
  for (const std::string& value : values) out.push_back(value);
  return out;
}

Json image_form(const ImageReference& image) {
  Json out = Json::object();
  out.set("kind", image.is_data_url ? "data_url" : "url");
  out.set("detail", image.detail);
  out.set("path", image.path);
  out.set(image.is_data_url ? "data_url" : "url", image.url);
  return out;
}

Json tools_form(const std::vector<ToolDefinition>& tools) {
  Json out = Json::array();
  for (const ToolDefinition& tool : tools) {
    Json form = Json::object();
    form.set("name", tool.name);
    form.set("description", or_null(tool.description));
    form.set("parameters", tool.parameters ? *tool.parameters : Json::object());
    if (tool.strict) form.set("strict", *tool.strict);
    if (tool.deferred) form.set("defer_loading", true);
    out.push_back(std::move(form));
  }
  return out;
}

Json message_form(const Message& message) {
  Json out = Json::object();
  out.set("role", role_name(message.role));
  out.set("content", message.content.with_placeholders());
  if (message.reasoning) out.set("reasoning_content", *message.reasoning);
  if (message.prefix) out.set("prefix", true);
  if (!message.tool_calls.empty()) {
    Json calls = Json::array();
    for (const ToolCall& call : message.tool_calls) {
      calls.push_back(Json::object({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}}));
    }
    out.set("tool_calls", std::move(calls));
  }
  if (!message.announced.empty()) out.set("tools", tools_form(message.announced));
  if (message.role == Role::kTool) out.set("tool_call_id", message.tool_call_id);
  if (!message.content.images.empty()) {
    std::vector<ImageReference> images;
    for (const RichText::Placement& placement : message.content.images) images.push_back(placement.image);
    out.set("images", images_form(images));
  }
  return out;
}

Json f32(float value) { return Json::number(python_number(static_cast<double>(value))); }

}  // namespace

Json images_form(const std::vector<ImageReference>& images) {
  Json out = Json::array();
  for (const ImageReference& image : images) out.push_back(image_form(image));
  return out;
}

Json conversation_form(const Conversation& conversation) {
  const ResponseFormat& format = conversation.format;
  Json messages = Json::array();
  for (const Message& message : conversation.messages) messages.push_back(message_form(message));
  Json out = Json::object();
  out.set("thinking_mode", conversation.thinking);
  out.set("reasoning_effort", conversation.effort ? Json(effort_name(*conversation.effort)) : Json());
  out.set("tool_choice", tool_choice_name(conversation.tool_choice));
  out.set("response_format", response_format_name(format.kind));
  out.set("response_schema", format.kind == ResponseFormat::Kind::kJsonSchema ? format.schema : Json());
  out.set("response_regex", format.kind == ResponseFormat::Kind::kRegex ? Json(format.regex) : Json());
  out.set("tools", tools_form(conversation.tools));
  out.set("messages", std::move(messages));
  return out;
}

Json inference_form(const ChatRequest& request) {
  Json constraint;
  if (const auto wanted = request.constraint()) {
    constraint = Json::object({{"kind", constraint_name(wanted->kind)}, {"schema", wanted->schema}});
  }
  Json out = Json::object();
  out.set("max_tokens", or_null(request.max_tokens));
  out.set("temperature", f32(request.sampling.temperature));
  out.set("top_p", f32(request.sampling.top_p));
  out.set("logprobs", request.logprobs);
  out.set("top_logprobs", or_null(request.top_logprobs));
  out.set("seed", or_null(request.seed));
  out.set("output_constraint", std::move(constraint));
  return out;
}

Json parsing_form(const ParseOptions& options, bool thinking) {
  Json stage;
  switch (options.start) {
    case ParseStart::kPlain:
    case ParseStart::kRaw: break;
    case ParseStart::kReasoning: stage = "ReasoningStart"; break;
    case ParseStart::kReasoningContinued: stage = "ReasoningContinuation"; break;
    case ParseStart::kContentContinued: stage = "ContentContinuation"; break;
  }
  Json out = Json::object();
  out.set("parse_tool_calls", options.tool_calls);
  out.set("starts_in_tool_calls", options.starts_in_tool_calls);
  out.set("parse_json_output", options.json_output);
  out.set("thinking_initial_stage", thinking ? stage : Json());
  out.set("stop_sequences", strings(options.stop));
  return out;
}

ApiOptions options_from_form(const Json& options) {
  ApiOptions out;
  for (const Json& alias : options.at("aliases").items()) out.models.push_back(alias.as_string());
  if (const Json* on = options.find("default_thinking_mode")) out.default_thinking = on->as_bool();
  out.reject_missing_reasoning = options.at("reasoning_content_behavior").as_string() == "Reject";
  out.messages_drops_web_search = options.at("messages_web_search").as_string() == "Drop";
  out.responses_rejects_web_search = options.at("responses_web_search").as_string() == "Reject";
  if (const Json* bound = options.find("thinking_max_tokens_upper_bound")) {
    if (const auto value = bound->to_int64("bound")) out.max_tokens_thinking = *value;
  }
  if (const Json* bound = options.find("non_thinking_max_tokens_upper_bound")) {
    if (const auto value = bound->to_int64("bound")) out.max_tokens_plain = *value;
  }
  return out;
}

}  // namespace deepinfer
