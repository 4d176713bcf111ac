// api/completions/request.h - a (legacy) Completions body to checked prompts.
//
// The text goes to the model as it is, without a chat template. `prompt` is a text, ids, or a list of either; with `suffix`
// the model fills the hole between the two. Numbers have the rules and error texts of Chat Completions.
// Promise: any bytes give a request or an Error of one line.
// Threads: pure functions.
//
//   DI_TRY(CompletionRequest request, parse_completion_request(body, options));
//   DI_TRY(std::vector<TokenId> ids, render_completion(request, text).encode(tokenizer));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/foreign_fields.h"
#include "api/profile.h"
#include "base/result.h"
#include "core/types.h"
#include "recipe/render.h"

namespace deepinfer {

using CompletionPrompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  std::string model;
  std::vector<CompletionPrompt> prompts;
  std::optional<std::string> suffix;
  int64_t max_tokens = 16;
  std::optional<float> temperature, top_p;
  float frequency_penalty = 0, presence_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  ForeignFields foreign;  // open profile only
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  int num_answers = 1;              // of each prompt
  std::optional<int> num_logprobs;  // 0 to 20
  bool echo = false;
  bool stream = false, include_usage = false;
};

Result<CompletionRequest> parse_completion_request(std::string_view body, const ApiOptions& options);

// Begin-of-text, then the text of a prompt; with a suffix in the order the model knows holes.
Prompt render_completion(const CompletionRequest& request, std::string_view text);

}  // namespace deepinfer
