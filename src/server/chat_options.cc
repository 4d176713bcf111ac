#include "server/chat_options.h"

#include <algorithm>

namespace deepinfer {

AskOptions chat_ask_options(const ChatRequest& request) {
  AskOptions options;
  if (request.gives_temperature) options.temperature = request.sampling.temperature;
  if (request.gives_top_p) options.top_p = request.sampling.top_p;
  options.seed = request.seed;
  options.max_tokens = request.max_tokens;
  options.stop = request.stop;
  options.frequency_penalty = request.frequency_penalty;
  options.presence_penalty = request.presence_penalty;
  options.logit_bias = request.logit_bias;
  if (request.logprobs) options.num_logprobs = request.top_logprobs.value_or(0);
  return options;
}

Status check_built(const ChatRequest& request) {
  const std::optional<OutputConstraint> constraint = request.constraint();
  if (!constraint) return {};
  // With tool_choice auto the model may call or not, and what it writes is parsed; only strict schemas promise more.
  const auto& tools = request.conversation.tools;
  const bool strict =
      std::any_of(tools.begin(), tools.end(), [](const ToolDefinition& tool) { return tool.strict.value_or(false); });
  using Kind = OutputConstraint::Kind;
  const bool format = request.conversation.format.kind != ResponseFormat::Kind::kText;
  if (constraint->kind == Kind::kToolCall && format) {
    return unsupported("response_format beside tools is not built yet in this version: the answer would not be held to it");
  }
  if (constraint->kind == Kind::kToolCall && !strict) return {};
  if (constraint->kind == Kind::kJson || constraint->kind == Kind::kRegex) return {};
  return unsupported("constraints on tool calls (tool_choice required or named, strict tools) are not built yet in this version");
}

}  // namespace deepinfer
