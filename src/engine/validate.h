// engine/validate.h - what submit() refuses: one precise line per fault, before anything is queued.
//
// Threads: pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/model_shape.h"
#include "core/types.h"

namespace deepinfer {

// For a request that names none; below 2^63.
Result<uint64_t> draw_seed();
Status validate_sampling(const SamplingParams& sampling, int32_t vocab);
// So many tokens the answer may have. Errors: prompt and answer never fit `pages` pages.
Result<int64_t> answer_limit(int64_t prompt_tokens, int32_t max_tokens, int64_t context, int64_t pages, int64_t page_tokens);
// Prompt, images, stop ids, limits and sampling of a request for a model with `context` tokens per sequence.
Status validate_request(const Request& request, const ModelShape& shape, int64_t context);

}  // namespace deepinfer
