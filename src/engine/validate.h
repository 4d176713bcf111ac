// engine/validate.h - what submit() refuses: one precise line per fault, before anything is queued.
//
// Threads: pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/model_shape.h"
#include "core/types.h"

namespace deepinfer {

Status validate_sampling(const SamplingParams& sampling, int32_t vocab);
// Prompt, images, stop ids, limits and sampling of a request for a model with `context` tokens per sequence.
Status validate_request(const Request& request, const ModelShape& shape, int64_t context);

}  // namespace deepinfer
