// grammar/constraint.h - a compiled constraint: what an answer must look like, ready to make masks.
//
// A constraint is a regular expression, a JSON Schema, any JSON object, or a grammar in EBNF. Compiling it refuses what can not
// be enforced, with keyword and place; what compiles is enforced to the last byte. All masks of a constraint build on one
// automaton, so what one has worked out is there for the others, running or yet to come. Promise: never throws, bounded by
// CompileLimits, on hostile input too. Threads: a Constraint is const, shared by as many masks as you like; compile from any
// thread. Masks of one constraint may be used from different threads; they take turns.
//
//   auto vocabulary = Vocabulary::create(tokenizer);
//   DI_TRY(auto constraint, compile_regex(vocabulary, "[0-9]{4}-[0-9]{2}"));
//   std::unique_ptr<TokenMask> mask = constraint->start(stop_ids);
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/types.h"
#include "grammar/automaton.h"
#include "grammar/schema_reader.h"
#include "grammar/token_mask.h"

namespace deepinfer {

class SharedAutomaton;

class Constraint {
 public:
  Constraint(std::shared_ptr<const Vocabulary> vocabulary, const Lexer& lexer, std::unique_ptr<RuleSource> rules);

  // Tokens of `end_ids` are allowed where the answer may end.
  std::unique_ptr<TokenMask> start(std::vector<TokenId> end_ids) const;
  // What may follow `written`, so that both together satisfy this; null when nothing may. It learns on its own.
  std::shared_ptr<const Constraint> after(std::string_view written) const;
  // Whether a whole text satisfies the constraint.
  bool matches(std::string_view text) const;
  // Nothing satisfies it.
  bool impossible() const { return first_.threads.empty() && !first_.complete; }
  int32_t vocab_size() const { return num_tokens_; }
  bool exhausted() const { return exhausted_; }

 private:
  std::shared_ptr<SharedAutomaton> shared_;
  GrammarState first_;
  int32_t num_tokens_ = 0;
  bool exhausted_ = false;
};

struct CompileLimits {
  size_t max_source_bytes = 1 << 20;  // of the schema or grammar as text
  RegexLimits regex;
};

using ConstraintResult = Result<std::shared_ptr<const Constraint>>;

// The whole answer matches `pattern` (syntax: grammar/regex_syntax.h).
ConstraintResult compile_regex(std::shared_ptr<const Vocabulary> vocabulary, std::string_view pattern,
                               const CompileLimits& limits = {});
// The answer is a JSON value that satisfies `schema` (keywords: schema_keywords()).
ConstraintResult compile_json_schema(std::shared_ptr<const Vocabulary> vocabulary, const Json& schema,
                                     const SchemaOptions& options = {}, const CompileLimits& limits = {});
// The answer is any JSON object.
ConstraintResult compile_json_object(std::shared_ptr<const Vocabulary> vocabulary);

// The answer is in the language of a grammar in EBNF (syntax: grammar/ebnf.h).
ConstraintResult compile_ebnf(std::shared_ptr<const Vocabulary> vocabulary, std::string_view grammar,
                              const CompileLimits& limits = {});

}  // namespace deepinfer
