#include "engine/validate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "grammar/constraint.h"
#include "ops/ops.h"

namespace deepinfer {
namespace {

Status in_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return {};  // NaN is in no range
  return invalid_argument(fmt::format("{} must be {} to {}, got {}", name, low, high, value));
}

Status finite(const char* name, float value) {
  if (std::isfinite(value)) return {};
  return invalid_argument(fmt::format("{} must be a finite number, got {}", name, value));
}

Status below_vocab(const char* name, TokenId id, int32_t vocab) {
  if (id >= 0 && id < vocab) return {};
  return invalid_argument(fmt::format("{}: token {} is not in the vocabulary of {}", name, id, vocab));
}

Status validate_images(const Request& request, int32_t hidden) {
  Position end = 0;
  for (const ImageSpan& image : request.images) {
    if (image.rows < 1 || image.begin < end || image.begin > static_cast<int64_t>(request.prompt.size()) - image.rows) {
      return invalid_argument(fmt::format("image rows {} to {} do not lie in order inside the prompt of {} tokens", image.begin,
                                          static_cast<uint64_t>(image.begin) + static_cast<uint64_t>(image.rows),
                                          request.prompt.size()));
    }
    if (image.embeddings.size() != static_cast<size_t>(image.rows) * static_cast<size_t>(hidden)) {
      return invalid_argument(fmt::format("image at {}: {} embedding values, {} rows of {} need {}", image.begin,
                                          image.embeddings.size(), image.rows, hidden, int64_t{image.rows} * hidden));
    }
    end = image.begin + image.rows;
  }
  return {};
}

Status validate_constraint(const Request& request, int32_t vocab) {
  if (!request.constraint.grammar) return {};
  if (request.stop_ids.empty()) return invalid_argument("a constrained answer needs a stop id to end with");
  const int32_t tokens = request.constraint.grammar->vocab_size();
  if (tokens > vocab) return invalid_argument(fmt::format("the constraint is for {} tokens, the model has {}", tokens, vocab));
  return {};
}

}  // namespace

Result<uint64_t> draw_seed() {
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof(seed)) != 0) return io_error("the system gives no random seed: set one in the request");
  return seed >> 1;
}

Status validate_sampling(const SamplingParams& sampling, int32_t vocab) {
  if (!(sampling.temperature >= 0.0f) || !std::isfinite(sampling.temperature)) {
    return invalid_argument(fmt::format("temperature must be 0 or more, got {}", sampling.temperature));
  }
  DI_CHECK_OK(in_range("top_p", sampling.top_p, 0.0f, 1.0f));
  DI_CHECK_OK(in_range("min_p", sampling.min_p, 0.0f, 1.0f));
  if (sampling.top_k < 0) return invalid_argument(fmt::format("top_k must be 0 (all) or more, got {}", sampling.top_k));
  DI_CHECK_OK(finite("frequency_penalty", sampling.frequency_penalty));
  DI_CHECK_OK(finite("presence_penalty", sampling.presence_penalty));
  if (!(sampling.repetition_penalty > 0.0f) || !std::isfinite(sampling.repetition_penalty)) {
    return invalid_argument(fmt::format("repetition_penalty must be more than 0, got {}", sampling.repetition_penalty));
  }
  if (sampling.seed && *sampling.seed >> 63 != 0) {
    return invalid_argument(fmt::format("seed must be 0 to 2^63 - 1, got {}", *sampling.seed));
  }
  if (sampling.num_logprobs < -1 || sampling.num_logprobs > kMaxTopLogprobs) {
    return invalid_argument(fmt::format("logprobs must be 0 to {}, got {}", kMaxTopLogprobs, sampling.num_logprobs));
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    DI_CHECK_OK(below_vocab("logit_bias", token, vocab));
    DI_CHECK_OK(finite("logit_bias", bias));
  }
  return {};
}

Result<int64_t> answer_limit(int64_t prompt_tokens, int32_t max_tokens, int64_t context, int64_t pages, int64_t page_tokens) {
  // An answer without a limit of its own takes what the pool can hold.
  const int64_t most = max_tokens > 0 ? context : std::min(context, pages * page_tokens);
  int64_t limit = std::max<int64_t>(1, most - prompt_tokens);
  if (max_tokens > 0) limit = std::min<int64_t>(limit, max_tokens);
  // The last token of an answer is never run, so this leaves a row to spare.
  const int64_t needed = (prompt_tokens + limit + page_tokens - 1) / page_tokens;
  if (needed <= pages) return limit;
  return too_large(
      fmt::format("a prompt of {} tokens and an answer of {} need {} pages of {} tokens, the pool has {}: "
                  "lower max_tokens or give the engine more pages",
                  prompt_tokens, limit, needed, page_tokens, pages));
}

Status validate_request(const Request& request, const ModelShape& shape, int64_t context) {
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) return invalid_argument("the prompt is empty: it needs at least one token");
  if (prompt_tokens >= context) {
    return too_large(
        fmt::format("the prompt has {} tokens, the context is {} and one must be left for the answer: shorten the prompt "
                    "or raise the context",
                    prompt_tokens, context));
  }
  if (request.max_tokens < 0) {
    return invalid_argument(fmt::format("max_tokens must be 0 (up to the context) or more, got {}", request.max_tokens));
  }
  for (const TokenId id : request.prompt) DI_CHECK_OK(below_vocab("prompt", id, shape.vocab));
  for (const TokenId id : request.answered) DI_CHECK_OK(below_vocab("answered", id, shape.vocab));
  if (!request.answered.empty() && !request.sampling.seed) return invalid_argument("an answer goes on with its seed only");
  for (const TokenId id : request.stop_ids) DI_CHECK_OK(below_vocab("stop_ids", id, shape.vocab));
  DI_CHECK_OK(validate_constraint(request, shape.vocab));
  DI_CHECK_OK(validate_images(request, shape.hidden));
  return validate_sampling(request.sampling, shape.vocab);
}

}  // namespace deepinfer
