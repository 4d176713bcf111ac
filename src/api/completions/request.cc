#include "api/completions/request.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/common_rules.h"
#include "api/decode.h"
#include "api/json_body.h"
#include "recipe/control_tokens.h"

namespace deepinfer {

namespace {

constexpr size_t kMaxPrompts = 128;
constexpr uint64_t kOfficialMaxTokens = 4096;

struct Body {
  std::string model;
  std::vector<CompletionPrompt> prompts;
  std::optional<std::string> suffix;
  std::optional<uint64_t> max_tokens, num_answers, best_of, seed, logprobs;
  std::optional<float> temperature, top_p, frequency_penalty, presence_penalty;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<std::string> stop;
  bool stop_is_list = false, has_stream_options = false;
  std::optional<bool> stream, echo, include_usage;
};

Status read_u8(const Json& json, uint64_t& out) { return read_unsigned(json, "u8", 255, out); }
Status read_u32(const Json& json, uint64_t& out) { return read_unsigned(json, "u32", UINT32_MAX, out); }
Status read_u64(const Json& json, uint64_t& out) { return read_unsigned(json, "u64", UINT64_MAX, out); }

Status read_ids(const Json& json, std::vector<TokenId>& ids) {
  return read_list(json, [&](const Json& item) -> Status {
    uint64_t id = 0;
    DI_CHECK_OK(read_unsigned(item, "u32", INT32_MAX, id));
    ids.push_back(static_cast<TokenId>(id));
    return {};
  });
}

Status read_prompt(const Json& json, std::vector<CompletionPrompt>& prompts) {
  if (json.is_string()) return prompts.emplace_back(json.as_string()), Status();
  if (!json.is_array()) return decode_error("prompt should be a string, a list of token ids, or a list of either");
  const auto all = [&](auto kind) { return std::all_of(json.items().begin(), json.items().end(), kind); };
  if (json.size() > 0 && all([](const Json& item) { return item.is_number(); })) {
    return read_ids(json, std::get<std::vector<TokenId>>(prompts.emplace_back(std::vector<TokenId>())));
  }
  return read_list(json, [&](const Json& item) -> Status {
    if (item.is_string()) return prompts.emplace_back(item.as_string()), Status();
    if (!item.is_array()) return decode_error("prompt should be a string, a list of token ids, or a list of either");
    return read_ids(item, std::get<std::vector<TokenId>>(prompts.emplace_back(std::vector<TokenId>())));
  });
}

Status read_stop(const Json& json, Body& body) {
  if (json.is_string()) return body.stop = {json.as_string()}, Status();
  if (!json.is_array()) return decode_error("expected a string or a list");
  body.stop_is_list = true;
  return read_list(json, [&](const Json& item) { return read_string(item, body.stop.emplace_back()); });
}

Result<Body> decode_body(const Json& json) {
  Body body;
  DI_CHECK_OK(decode_struct(
      json, "CompletionRequest",
      {required("model", into(body.model, read_string)),
       required("prompt", [&](const Json& value) { return read_prompt(value, body.prompts); }),
       optional("suffix", into(body.suffix, read_string)), optional("max_tokens", into(body.max_tokens, read_u32)),
       optional("temperature", into(body.temperature, read_f32)), optional("top_p", into(body.top_p, read_f32)),
       optional("frequency_penalty", into(body.frequency_penalty, read_f32)),
       optional("presence_penalty", into(body.presence_penalty, read_f32)),
       optional("logit_bias", [&](const Json& value) { return read_logit_bias(value, body.logit_bias); }),
       optional("n", into(body.num_answers, read_u8)), optional("best_of", into(body.best_of, read_u8)),
       optional("seed", into(body.seed, read_u64)), optional("logprobs", into(body.logprobs, read_u8)),
       optional("echo", into(body.echo, read_bool)), optional("stream", into(body.stream, read_bool)),
       optional("stop", [&](const Json& value) { return read_stop(value, body); }),
       optional("stream_options", [&](const Json& value) {
         body.has_stream_options = true;
         return decode_struct(value, "StreamOptions", {optional("include_usage", into(body.include_usage, read_bool))});
       })}));
  return body;
}

Status check_prompts(const Body& body) {
  if (body.prompts.empty()) return invalid_argument("Invalid prompt: an empty list");
  if (body.prompts.size() > kMaxPrompts)
    return invalid_argument(fmt::format("Invalid prompt: {} prompts, at most {} are allowed", body.prompts.size(), kMaxPrompts));
  for (size_t i = 0; i < body.prompts.size(); ++i) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&body.prompts[i]); ids && ids->empty())
      return invalid_argument(fmt::format("Invalid prompt[{}]: an empty list of token ids", i));
    if (body.suffix && std::holds_alternative<std::vector<TokenId>>(body.prompts[i]))
      return invalid_argument("suffix needs a prompt in text, not in token ids");
  }
  return {};
}

Status check_numbers(const Body& body) {
  const uint64_t answers = body.num_answers.value_or(1);
  if (answers < 1 || answers > 128) return invalid_argument("Invalid n value, the valid range of n is [1, 128]");
  if (body.best_of && *body.best_of != answers) return invalid_argument("best_of is not supported other than equal to n");
  if (body.prompts.size() * answers > kMaxPrompts)
    return invalid_argument(
        fmt::format("{} prompts times n = {} are more than {} answers", body.prompts.size(), answers, kMaxPrompts));
  DI_CHECK_OK(check_penalty("presence_penalty", body.presence_penalty));
  DI_CHECK_OK(check_penalty("frequency_penalty", body.frequency_penalty));
  DI_CHECK_OK(check_temperature(body.temperature));
  DI_CHECK_OK(check_top_p(body.top_p));
  if (body.logprobs.value_or(0) > 20) return invalid_argument("Invalid logprobs value, the valid range of logprobs is [0, 20].");
  if (body.max_tokens.value_or(1) < 1) return invalid_argument("Invalid max_tokens value, at least 1 is needed");
  if (body.seed.value_or(0) >> 63) return invalid_argument("Invalid seed value, the valid range of seed is [0, 2^63)");
  return {};
}

}  // namespace

Result<CompletionRequest> parse_completion_request(std::string_view text, const ApiOptions& options) {
  DI_TRY(const Json json, parse_json_body(text));
  DI_TRY(Body body, decode_body(json));
  DI_CHECK_OK(check_model(body.model, options));
  DI_CHECK_OK(check_prompts(body));
  DI_CHECK_OK(check_stop(body.stop, body.stop_is_list));
  DI_CHECK_OK(check_numbers(body));
  if (body.has_stream_options && !body.stream.value_or(false))
    return invalid_argument("stream_options should be set along with stream = true");
  if (body.echo.value_or(false) && body.logprobs)
    return unsupported("echo together with logprobs is not supported: log-probabilities of a prompt are not kept");
  const ProfileRules rules = profile_rules(options.profile);
  if (!rules.long_completions && body.max_tokens.value_or(1) > kOfficialMaxTokens) {
    return invalid_argument(
        fmt::format("Invalid max_tokens value, the valid range of max_tokens is [1, {}]", kOfficialMaxTokens));
  }
  const auto otherwise = rules.follows_checkpoint ? std::nullopt : std::optional(1.0f);
  CompletionRequest request;
  if (rules.foreign_fields) {
    DI_TRY(request.foreign, read_foreign_fields(json));
  }
  request.model = std::move(body.model);
  request.prompts = std::move(body.prompts);
  request.suffix = std::move(body.suffix);
  request.max_tokens = static_cast<int64_t>(body.max_tokens.value_or(16));
  request.temperature = body.temperature ? body.temperature : otherwise;
  request.top_p = body.top_p ? body.top_p : otherwise;
  request.frequency_penalty = body.frequency_penalty.value_or(0.0f);
  request.presence_penalty = body.presence_penalty.value_or(0.0f);
  request.logit_bias = std::move(body.logit_bias);
  request.seed = body.seed;
  request.stop = std::move(body.stop);
  request.num_answers = static_cast<int>(body.num_answers.value_or(1));
  if (body.logprobs) request.num_logprobs = static_cast<int>(*body.logprobs);
  request.echo = body.echo.value_or(false);
  request.stream = body.stream.value_or(false);
  request.include_usage = body.include_usage.value_or(false);
  return request;
}

Prompt render_completion(const CompletionRequest& request, std::string_view text) {
  Prompt prompt;
  prompt.add_control(control::kBeginOfText);
  if (request.suffix) prompt.add_control(control::kFimBegin);
  prompt.add_text(text);
  if (!request.suffix) return prompt;
  prompt.add_control(control::kFimHole);
  prompt.add_text(*request.suffix);
  prompt.add_control(control::kFimEnd);
  return prompt;
}

}  // namespace deepinfer
