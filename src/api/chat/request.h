// api/chat/request.h - a Chat Completions body to a checked request.
//
// Two steps: decode (bytes to the body's own shape, decode errors) and check (the wire's rules in their order, the first
// failure wins). What comes out holds nothing of the wire any more except the flags the answer needs.
// Promise: any bytes give a request or an Error whose message is the one clients of the official service know.
// Threads: pure functions.
//
//   DI_TRY(ChatRequest request, parse_chat_request(body, options));
//   Prompt prompt = render_prompt(request.conversation);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/foreign_fields.h"
#include "api/profile.h"
#include "base/result.h"
#include "core/types.h"
#include "recipe/constraint.h"
#include "recipe/conversation.h"
#include "recipe/parse.h"
#include "recipe/sampling.h"

namespace deepinfer {

struct ChatRequest {
  std::string model;
  Conversation conversation;
  std::vector<std::string> stop;

  std::optional<int64_t> max_tokens;  // as requested
  EffectiveSampling sampling;
  bool gives_temperature = false, gives_top_p = false;  // said by the body or fixed by the profile: the checkpoint has no say
  float frequency_penalty = 0;                          // the official profile checks the penalties and ignores them
  float presence_penalty = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;  // open profile only
  std::string grammar;                                // EBNF the answer is held to; open profile only
  ForeignFields foreign;                              // open profile only
  std::optional<uint64_t> seed;
  int num_answers = 1;
  bool logprobs = false;
  std::optional<int> top_logprobs;

  bool stream = false;
  bool include_usage = false;

  std::optional<OutputConstraint> constraint() const { return output_constraint(conversation); }
  ParseOptions parsing() const { return parse_options(conversation, stop); }
};

// How the answer is drawn, from what the body says. REQUIRES: conversation.thinking is settled.
void set_sampling(ChatRequest& request, std::optional<float> temperature, std::optional<float> top_p, const ProfileRules& rules);

Result<ChatRequest> parse_chat_request(std::string_view body, const ApiOptions& options);

}  // namespace deepinfer
