// host/answer_constraint.h - what an answer is held to, from what its conversation asks for.
//
// tool_choice none: tools play no part. required and named: the answer is calls. auto: text, or the wanted format, or calls; held
// to that only where a tool is strict, a format stands beside the tools, or not every tool or number of calls is allowed, else
// what the model writes is parsed and no more.
// Where the answer goes on with the text of a prefix message, both together are held to it.
// Promise: what is asked for is enforced or refused with the reason.
// Threads: any.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "core/types.h"
#include "grammar/tool_calls.h"
#include "host/host.h"
#include "recipe/conversation.h"

namespace deepinfer {

// Nothing where the answer is not held to calls.
// `ebnf`, when given, instead of the conversation's format.
Result<std::optional<ToolCallForm>> tool_call_form(const Conversation& conversation,
                                                   const std::optional<std::string>& ebnf = std::nullopt);

// `ebnf` as above.
Result<AnswerConstraint> answer_constraint(const Host& host, const Conversation& conversation,
                                           const std::optional<std::string>& ebnf);

}  // namespace deepinfer
