#include "recipe/sampling.h"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {

EffectiveSampling effective_sampling(bool thinking, std::optional<float> temperature, std::optional<float> top_p) {
  if (thinking) return {1.0f, std::max(top_p.value_or(1.0f), 0.95f)};
  return {temperature.value_or(1.0f), 1.0f};
}

Error beyond_context(int64_t context_limit, int64_t prompt_tokens, int64_t answer_tokens) {
  return too_large(
      fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
                  "messages, {} in the completion). Please reduce the length of the messages or completion.",
                  context_limit, prompt_tokens + answer_tokens, prompt_tokens, answer_tokens));
}

Result<int64_t> resolve_max_tokens(const Conversation& conversation, std::optional<int64_t> requested, int64_t prompt_tokens,
                                   int64_t context_limit) {
  const int64_t completion = requested.value_or(0);
  if (prompt_tokens + completion > context_limit) return beyond_context(context_limit, prompt_tokens, completion);
  int64_t limit = 8192;
  if (conversation.thinking) limit = conversation.effort == Effort::kMax ? 131072 : 65536;
  return std::max<int64_t>(1, std::min(requested.value_or(limit), context_limit - prompt_tokens));
}

}  // namespace deepinfer
