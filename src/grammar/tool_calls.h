// grammar/tool_calls.h - answers that may or must call tools: text or a value, then calls whose arguments fit their schemas.
//
// The markup is data: this room knows that a call has a name and arguments, not how they are spelled. Whatever stands between
// marks cannot hold the mark that would end it, so a reader that looks for marks only reads what was meant.
// A tool that is not strict is held to its schema, too, where that can be enforced; else to its name and well-formed arguments.
// Threads: any.
//
//   ToolCallForm form{.tools = {{"add", schema, true}}, .required = true, .markup = markup};
//   DI_TRY(auto constraint, compile_tool_calls(vocabulary_with_markup, form));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/constraint.h"
#include "grammar/schema_rules.h"

namespace deepinfer {

struct CallMarkup {
  std::string lead;                   // may stand before `open`
  std::string open, close;            // around all calls
  std::string call, named, end_call;  // call NAME named ARGUMENTS end_call
  ArgumentMarkup argument;
  std::string mark, end_mark;  // where markup begins in an answer; where it ends a value
  std::string end_thinking;
};

struct ToolCallForm {
  struct Tool {
    std::string name;
    std::optional<Json> parameters;  // JSON Schema
    bool strict = false;             // a schema that cannot be enforced is an error
  };
  std::vector<Tool> tools;
  bool required = false;  // at least one call, and nothing before it
  bool opened = false;    // the prompt ends behind `open`
  bool thinking = false;  // the answer begins with thinking
  int64_t max_calls = 0;  // 0 = any number, at most kMaxCounted
  static constexpr int64_t kMaxCounted = 128;
  // What an answer without calls is: at most one of these; none = any text, which may also stand before calls.
  std::optional<Json> schema;
  std::optional<std::string> regex;
  std::optional<std::string> ebnf;
  CallMarkup markup;
};

// `vocabulary` holds the tokens that the markup is made of.
ConstraintResult compile_tool_calls(std::shared_ptr<const Vocabulary> vocabulary, const ToolCallForm& form,
                                    const CompileLimits& limits = {});

}  // namespace deepinfer
