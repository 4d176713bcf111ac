// grammar/schema_rules.h - the grammar of a planned schema: values, and objects and arrays state by state.
//
// What has been seen of an object (names, their number) is a nonterminal, made when an answer gets there; so properties
// come in any order without one rule per order.
// Threads: one thread at a time; clones share the plan.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "grammar/rules.h"
#include "grammar/schema_plan.h"

namespace deepinfer {

class SchemaRules final : public RuleSource {
 public:
  explicit SchemaRules(std::shared_ptr<const SchemaPlan> plan) : plan_(std::move(plan)) {}

  std::unique_ptr<RuleSource> clone() const override { return std::make_unique<SchemaRules>(*this); }
  Nonterminal start() const override { return plan_->root; }
  std::vector<Production> expand(Nonterminal rule, RegexArena& arena) override;

 private:
  // Inside a container: which one, and what has been seen. Of an object `words` are the bits of the entries seen, of an
  // array the numbers that ArrayState counts.
  struct State {
    uint32_t value = 0, shape = 0;
    bool is_array = false, begun = false;
    int64_t count = 0;
    std::vector<uint32_t> words;
    bool operator<(const State& other) const;
  };

  Nonterminal state(State state);
  std::vector<Production> value_rules(uint32_t value, RegexArena& arena);
  std::vector<Production> object_rules(const State& state, RegexArena& arena);
  std::vector<Production> array_rules(const State& state, RegexArena& arena);

  std::shared_ptr<const SchemaPlan> plan_;
  std::vector<State> states_;
  std::map<State, Nonterminal> index_;
};

}  // namespace deepinfer
