// host/constraints.h - compiled constraints of one tokenizer, kept for the next request that asks for the same.
//
// Promise: bounded (the least recently used goes first). A refusal is kept, too: it may have taken as long as the limits allow.
// Compiling happens on the caller's thread, outside the lock.
// Threads: any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "host/constraint_source.h"
#include "text/tokenizer.h"

namespace deepinfer {

class Constraints {
 public:
  // `tokenizer` must outlive this.
  explicit Constraints(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Errors: what its kind says, and a text that no wanted answer begins with.
  ConstraintResult of_source(const ConstraintSource& source);
  ConstraintResult of(const OutputConstraint& wanted);
  ConstraintResult of_grammar(const std::string& ebnf);
  ConstraintResult of_tools(const ToolCallForm& form);

 private:
  struct Entry {
    std::string key;
    ConstraintResult result;
    int64_t used = 0;
  };
  template <class Compile>
  ConstraintResult find(std::string key, Compile compile);
  std::shared_ptr<const Vocabulary> vocabulary(bool with_markup = false);

  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  // Made by the first constraint that needs them: it takes a quarter of a second. In the second, marks of tool calls are text.
  std::shared_ptr<const Vocabulary> vocabularies_[2];
  std::vector<Entry> entries_;
  size_t key_bytes_ = 0;
  int64_t clock_ = 0;
};

}  // namespace deepinfer
