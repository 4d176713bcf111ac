// api/profile.h - what a server accepts and promises beyond the wire format.
//
// The one table of differences between the profiles: `official` behaves exactly as the recipe, including what it ignores
// and refuses; `open` is a superset that users of other servers expect. docs/serve.md has it for readers, made from
// profile_table().
// Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

enum class Profile { kOfficial, kOpen };
const char* profile_name(Profile profile);
Result<Profile> parse_profile(std::string_view name);

// What the profile changes; profile_table() says the same in words.
struct ProfileRules {
  bool developer_is_system = false;
  bool max_completion_tokens = false;      // stands in for max_tokens
  bool honours_sampling = false;           // requested temperature and top_p in both modes, penalties, logit_bias
  bool follows_checkpoint = false;         // temperature and top_p that a request leaves open are the checkpoint's
  bool tool_choice_with_thinking = false;  // required and named
  bool grammar_format = false;             // response_format of Chat may be an EBNF grammar
  bool model_not_found = false;            // an unknown model is 404, not 400
  bool several_answers = false;            // n > 1
  bool foreign_fields = false;             // fields of other servers (api/foreign_fields.h)
  bool stored_responses = false;           // store, previous_response_id, background, metadata of the Responses wire
  bool messages_client_tools = false;      // tools of Messages may be of type "custom"; web search among them is dropped
  bool messages_structured = false;        // Messages: tool_choice any, strict tools and output_config.format have their meaning
  bool messages_fits_max_tokens = false;   // max_tokens of Messages is lowered to what the context has left
  bool strict_refs_in_any_of = false;      // strict schemas may have a $ref among anyOf
  bool limits_calls = false;               // parallel_tool_calls, max_tool_calls and allowed_tools hold
  bool messages_errors = false;            // errors of Messages in the form of its SDK, not in that of all wires
  bool usage_apart = false;                // usage of a Chat stream with include_usage in a chunk of its own
  bool strict_beside_others = false;       // strict tools beside others and beside an answer format
  bool long_completions = false;           // max_tokens of Completions beyond 4096
  bool draft_usage = false;                // usage of Chat and Completions tells of drafts
  bool waits_to_begin = false;             // however long an answer waits for its first token
};
ProfileRules profile_rules(Profile profile);

// A line of the table for readers; a rule has one or more.
struct ProfileDifference {
  bool ProfileRules::*rule;
  const char *what, *official, *open;
};
std::span<const ProfileDifference> profile_differences();
// As a table in Markdown.
std::string profile_table();

struct ApiOptions {
  Profile profile = Profile::kOfficial;
  std::vector<std::string> models = {"DeepSeek-V4-Pro", "DeepSeek-V4.1-Flash"};  // accepted names, aliases included
  bool default_thinking = true;
  bool reject_missing_reasoning = false;
  bool messages_takes_claude = false;         // names that begin with "claude" are accepted, as by the public service
  bool messages_drops_web_search = false;     // web search of the Messages wire is dropped instead of refused
  bool messages_rejects_web_search = false;   // it is refused, whatever the profile does
  bool responses_rejects_web_search = false;  // that of the Responses wire is refused instead of dropped
  int64_t max_tokens_thinking = 393216;       // upper bounds of max_tokens
  int64_t max_tokens_plain = 393216;
};

// Web search of the Messages wire - as a tool, and as a block of earlier turns - is left out instead of refused.
bool drops_web_search(const ApiOptions& options);

}  // namespace deepinfer
