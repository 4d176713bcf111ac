// host/constraint_source.h - what a constraint is compiled from, as a value and as text that another process reads.
//
// Threads: pure.
//
//   ConstraintSource source{.what = OutputConstraint{OutputConstraint::Kind::kRegex, "[0-9]+"}};
//   DI_TRY(const ConstraintSource same, read_constraint_source(write_constraint_source(source)));
//   DI_TRY(auto constraint, constraints.of_source(same));      // host/constraints.h
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "grammar/tool_calls.h"
#include "recipe/constraint.h"

namespace deepinfer {

struct EbnfText {
  std::string text;
};

struct ConstraintSource {
  std::variant<OutputConstraint, EbnfText, ToolCallForm> what;
  std::string written;  // the answer goes on behind this text, which counts as part of it
};

// One line of JSON. The markup of calls is the recipe's and not in it.
std::string write_constraint_source(const ConstraintSource& source);
// kCorrupt for any other text.
Result<ConstraintSource> read_constraint_source(std::string_view text);

// How the recipe spells calls of tools.
CallMarkup recipe_call_markup();

}  // namespace deepinfer
