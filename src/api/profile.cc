#include "api/profile.h"

#include <array>

#include <fmt/format.h>

namespace deepinfer {

namespace {

using Rules = ProfileRules;
constexpr std::array kDifferences = std::to_array<ProfileDifference>({
    {&Rules::developer_is_system, "role `developer`", "refused", "a system message"},
    {&Rules::max_completion_tokens, "`max_completion_tokens`", "ignored", "used when `max_tokens` is absent"},
    {&Rules::honours_sampling, "`temperature`, `top_p`", "fixed while thinking; `top_p` fixed otherwise", "as requested"},
    {&Rules::follows_checkpoint, "`temperature`, `top_p` that are not given", "1",
     "as the checkpoint's folder recommends, else 1"},
    {&Rules::honours_sampling, "`frequency_penalty`, `presence_penalty`, `logit_bias`", "checked, no effect", "honoured"},
    {&Rules::tool_choice_with_thinking, "`tool_choice` required or named while thinking", "refused",
     "enforced behind the thinking"},
    {&Rules::model_not_found, "an unknown `model`", "400", "404"},
    {&Rules::several_answers, "`n`", "only 1", "1 to 128"},
    {&Rules::foreign_fields,
     "`top_k`, `min_p`, `repetition_penalty`; `enable_thinking`, `chat_template_kwargs` (`thinking`, `enable_thinking`)",
     "ignored", "honoured"},
    {&Rules::foreign_fields, "`guided_json`, `guided_regex`, `grammar` and the like; `min_tokens`, `ignore_eos`", "ignored",
     "refused: what they ask for would be lost"},
    {&Rules::grammar_format, "`response_format` of Chat of type `grammar`", "refused", "an EBNF grammar"},
    {&Rules::limits_calls, "`parallel_tool_calls`, `max_tool_calls` (1 to 128), `disable_parallel_tool_use`", "ignored",
     "so many calls, no more"},
    {&Rules::limits_calls, "`tool_choice` `allowed_tools`", "refused by Chat, ignored by Responses",
     "the model sees and calls only these"},
    {&Rules::strict_refs_in_any_of,
     "`strict` schemas beyond the recipe's strict form: a `$ref` among `anyOf`, more formats, `oneOf`, tuples", "refused",
     "enforced whole, as SDKs write their models; refused only where that cannot be, by keyword and path"},
    {&Rules::strict_beside_others, "a `strict` tool beside others, or beside a format of the answer", "refused",
     "each is held to its own: calls to the tools, an answer without calls to the format"},
    {&Rules::long_completions, "`max_tokens` of Completions", "at most 4096", "as far as the context goes"},
    {&Rules::stored_responses, "`store`, `previous_response_id`, `background`, `metadata` of a response", "ignored", "honoured"},
    {&Rules::stored_responses, "`include` of a response with `message.output_text.logprobs`, without `top_logprobs`", "ignored",
     "logprobs without alternatives"},
    {&Rules::messages_client_tools, "tools of Messages with a type", "refused",
     "`custom` is a tool like any; web search is left out, in earlier turns, too"},
    {&Rules::messages_structured, "`tool_choice` `any`, `strict` and `output_config.format` of Messages",
     "taken for `auto`, ignored, ignored", "enforced"},
    {&Rules::messages_fits_max_tokens, "`max_tokens` of Messages beyond the context", "refused", "lowered to what is left"},
    {&Rules::messages_errors, "errors of Messages", "as on the other wires", "as Anthropic's, with `request_id`"},
    {&Rules::usage_apart, "usage of a Chat stream with `include_usage`", "on the last chunk", "in a chunk of its own behind it"},
    {&Rules::draft_usage, "`accepted_prediction_tokens`, `rejected_prediction_tokens` in the usage of Chat and Completions",
     "absent", "drafts that became part of the answer, and that did not"},
    {&Rules::waits_to_begin, "an answer without a first token after `--start-timeout`", "ends with an error", "waits on"},
});

}  // namespace

std::span<const ProfileDifference> profile_differences() { return kDifferences; }

std::string profile_table() {
  std::string out = "| | official | open |\n|---|---|---|\n";
  for (const ProfileDifference& line : kDifferences)
    out += fmt::format("| {} | {} | {} |\n", line.what, line.official, line.open);
  return out;
}

const char* profile_name(Profile profile) { return profile == Profile::kOfficial ? "official" : "open"; }

Result<Profile> parse_profile(std::string_view name) {
  if (name == "official") return Profile::kOfficial;
  if (name == "open") return Profile::kOpen;
  return invalid_argument(fmt::format("unknown profile '{}': use official or open", name));
}

ProfileRules profile_rules(Profile profile) {
  ProfileRules rules;
  if (profile == Profile::kOfficial) return rules;
  for (const ProfileDifference& line : kDifferences) rules.*line.rule = true;
  return rules;
}

bool drops_web_search(const ApiOptions& options) {
  if (options.messages_rejects_web_search) return false;
  return options.messages_drops_web_search || profile_rules(options.profile).messages_client_tools;
}

}  // namespace deepinfer
