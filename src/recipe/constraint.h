// recipe/constraint.h - what the engine may hold an answer to.
//
// Tools win over an answer format. The schema is compact JSON: for tools an array of functions, nulls written.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "recipe/conversation.h"

namespace deepinfer {

struct OutputConstraint {
  enum class Kind { kToolCall, kToolCallRequired, kJson, kRegex };
  Kind kind = Kind::kJson;
  std::string schema;  // tools, JSON Schema (empty: any JSON) or the regular expression
};
const char* constraint_name(OutputConstraint::Kind kind);

std::optional<OutputConstraint> output_constraint(const Conversation& conversation);

}  // namespace deepinfer
