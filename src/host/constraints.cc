#include "host/constraints.h"

#include <algorithm>

namespace deepinfer {
namespace {

// An entry takes about a megabyte.
constexpr size_t kMaxEntries = 64;
// Compiled, a large source takes tens of megabytes: it is made anew for each request.
constexpr size_t kMaxKeptSource = 32 << 10;

}  // namespace

std::shared_ptr<const Vocabulary> Constraints::vocabulary() {
  const std::lock_guard lock(mutex_);
  if (!vocabulary_) vocabulary_ = Vocabulary::create(tokenizer_);
  return vocabulary_;
}

template <class Compile>
ConstraintResult Constraints::find(std::string key, Compile compile) {
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      entry.used = ++clock_;
      return entry.constraint;
    }
  }
  DI_TRY(auto constraint, compile(vocabulary()));
  if (key.size() > kMaxKeptSource) return constraint;
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMaxEntries) {
    entries_.erase(
        std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; }));
  }
  entries_.push_back({std::move(key), constraint, ++clock_});
  return constraint;
}

ConstraintResult Constraints::of(const OutputConstraint& wanted) {
  return find(std::string(constraint_name(wanted.kind)) + " " + wanted.schema,
              [&](std::shared_ptr<const Vocabulary> vocabulary) -> ConstraintResult {
                if (wanted.kind == OutputConstraint::Kind::kRegex) return compile_regex(std::move(vocabulary), wanted.schema);
                if (wanted.kind != OutputConstraint::Kind::kJson) return unsupported("calls of tools cannot be constrained yet");
                if (wanted.schema.empty()) return compile_json_object(std::move(vocabulary));
                if (wanted.schema.size() > CompileLimits{}.max_source_bytes)
                  return too_large("the JSON Schema is larger than 1 MiB");
                DI_TRY(const Json schema, Json::parse(wanted.schema));
                return compile_json_schema(std::move(vocabulary), schema);
              });
}

ConstraintResult Constraints::of_grammar(const std::string& ebnf) {
  return find("grammar " + ebnf,
              [&](std::shared_ptr<const Vocabulary> vocabulary) { return compile_ebnf(std::move(vocabulary), ebnf); });
}

}  // namespace deepinfer
