#include "api/foreign_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "api/decode.h"

namespace deepinfer {
namespace {

constexpr std::string_view kFormats[] = {"guided_json", "guided_regex",       "guided_choice", "guided_grammar",
                                         "grammar",     "structured_outputs", "json_schema"};
// Without effect here, unless they say what happens anyway.
constexpr std::string_view kWithoutMeaning[] = {
    "min_tokens", "ignore_eos", "use_beam_search", "stop_token_ids", "bad_words", "continue_final_message", "allowed_token_ids"};

bool says_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || (value.is_number() && value.number_text() == "0") ||
         (value.is_array() && value.size() == 0);
}

Status refuse_others(const Json& body) {
  for (const std::string_view name : kFormats) {
    if (body.at(name).is_null()) continue;
    return unsupported(
        fmt::format("{} is another server's field; here the same is response_format: {{\"type\": \"json_schema\", \"regex\" or "
                    "\"grammar\", ...}}",
                    name));
  }
  for (const std::string_view name : kWithoutMeaning) {
    if (!says_nothing(body.at(name)))
      return unsupported(fmt::format("{} is another server's field and not supported here", name));
  }
  return {};
}

Status read_thinking(const Json& value, std::string_view name, std::optional<bool>& thinking) {
  if (value.is_null()) return {};
  if (!value.is_bool()) return invalid_argument(fmt::format("Invalid {} value: expected true or false", name));
  thinking = value.as_bool();
  return {};
}

Status read_template(const Json& arguments, std::optional<bool>& thinking) {
  if (arguments.is_null()) return {};
  if (!arguments.is_object()) return invalid_argument("Invalid chat_template_kwargs value: expected an object");
  for (const auto& [name, value] : arguments.members()) {
    if (name != "thinking" && name != "enable_thinking")
      return unsupported(fmt::format("chat_template_kwargs.{} has no meaning here; thinking and enable_thinking have", name));
    DI_CHECK_OK(read_thinking(value, name, thinking));
  }
  return {};
}

// A number within [low, high]; absent = as it was.
Status read_number(const Json& body, std::string_view name, double low, double high, double& out) {
  const Json& value = body.at(name);
  if (value.is_null()) return {};
  const Result<double> number = value.to_double(name);
  if (!number || !(*number >= low && *number <= high))
    return invalid_argument(fmt::format("Invalid {0} value, the valid range of {0} is [{1}, {2}]", name, low, high));
  out = *number;
  return {};
}

}  // namespace

Result<ForeignFields> read_foreign_fields(const Json& body) {
  ForeignFields out;
  if (!body.is_object()) return out;
  DI_CHECK_OK(refuse_others(body));
  DI_CHECK_OK(read_template(body.at("chat_template_kwargs"), out.thinking));
  DI_CHECK_OK(read_thinking(body.at("enable_thinking"), "enable_thinking", out.thinking));
  double top_k = 0, min_p = 0, repetition = 1;
  DI_CHECK_OK(read_number(body, "top_k", -1, 1 << 30, top_k));
  DI_CHECK_OK(read_number(body, "min_p", 0, 1, min_p));
  DI_CHECK_OK(read_number(body, "repetition_penalty", 0.01, 10, repetition));
  if (top_k != static_cast<double>(static_cast<int32_t>(top_k)))
    return invalid_argument("Invalid top_k value: expected a whole number");
  out.top_k = std::max(0, static_cast<int32_t>(top_k));
  out.min_p = static_cast<float>(min_p);
  out.repetition_penalty = static_cast<float>(repetition);
  return out;
}

}  // namespace deepinfer
