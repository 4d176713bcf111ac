// recipe/sampling.h - how long an answer may be and how it is drawn, as the recipe has it.
//
// Thinking draws at temperature 1 with top_p of at least 0.95; without thinking the temperature is the client's and top_p
// is 1. An unset answer length depends on the mode and is cut to what the context leaves.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "recipe/conversation.h"

namespace deepinfer {

struct EffectiveSampling {
  float temperature = 1.0f;
  float top_p = 1.0f;
};
EffectiveSampling effective_sampling(bool thinking, std::optional<float> temperature, std::optional<float> top_p);

// What is said when they do not fit; kTooLarge.
Error beyond_context(int64_t context_limit, int64_t prompt_tokens, int64_t answer_tokens);

// The answer's limit in tokens, at least 1. Fails (kTooLarge) when prompt and requested answer do not fit the context.
Result<int64_t> resolve_max_tokens(const Conversation& conversation, std::optional<int64_t> requested, int64_t prompt_tokens,
                                   int64_t context_limit);

}  // namespace deepinfer
