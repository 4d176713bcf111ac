// grammar/schema_rules.h - the grammar of a planned schema: values, and objects and arrays state by state.
//
// What has been seen of an object (names, their number) is a nonterminal, made when an answer gets there; so properties
// come in any order without one rule per order. An object at the top may be written as arguments in a markup instead of JSON:
// names and values between marks, strings as they are.
// Threads: one thread at a time; clones share the plan.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "grammar/rules.h"
#include "grammar/schema_plan.h"

namespace deepinfer {

// How one argument is written: `begin`, its name in quotes, then `text` and a string as it is or `json` and any other value as
// JSON, then `end`; `between` two of them. A name ends at the first blank, so blanks in names are written \u0020.
struct ArgumentMarkup {
  std::string begin, text, json, end, between;
};

class SchemaRules final : public RuleSource {
 public:
  // With `arguments`, which must then outlive this, the top is an object in that markup.
  explicit SchemaRules(std::shared_ptr<const SchemaPlan> plan, std::shared_ptr<const ArgumentMarkup> arguments = nullptr);

  std::unique_ptr<RuleSource> clone() const override { return std::make_unique<SchemaRules>(*this); }
  Nonterminal start() const override { return start_; }
  std::vector<Production> expand(Nonterminal rule, RegexArena& arena) override;
  Nonterminal adopt(const RuleSource& from, Nonterminal rule) override;

 private:
  // kObject, kArray, kArguments: inside a container: which one, and what has been seen. Of an array `at.words` are the numbers
  // that ArrayState counts. kKey, kArgumentKey: behind the opening quote of a key.
  // kTop: before the first argument. kArgument: before a value.
  enum class Kind : uint8_t { kObject, kArray, kArguments, kKey, kArgumentKey, kTop, kArgument };
  struct State {
    uint32_t value = 0, shape = 0;
    Kind kind = Kind::kObject;
    bool begun = false;
    ObjectState at;
    bool operator<(const State& other) const;
  };

  Nonterminal state(State state);
  State first_object(uint32_t value, uint32_t shape, Kind kind) const;
  Rx string(RegexArena& arena, Rx text) const;
  Rx scalars(uint32_t value, RegexArena& arena, bool strings) const;
  void add_containers(uint32_t value, RegexArena& arena, Rx before, Rx behind, std::vector<Production>& out);
  std::vector<Production> value_rules(uint32_t value, RegexArena& arena);
  std::vector<Production> top_rules(uint32_t value);
  std::vector<Production> argument_rules(uint32_t value, RegexArena& arena);
  std::vector<Production> object_rules(const State& state, RegexArena& arena);
  std::vector<Production> array_rules(const State& state, RegexArena& arena);
  // Which keys may come: one of the entries, or any of a class.
  struct KeyChoice {
    std::optional<size_t> entry;
    Rx text;
    uint32_t value;
    ObjectState then;
  };
  std::vector<KeyChoice> key_choices(const State& state, RegexArena& arena) const;
  std::vector<Production> key_rules(const State& state, RegexArena& arena);
  // A known key from behind its opening quote up to its value.
  Rx key_terminal(const State& state, size_t entry, RegexArena& arena);

  std::shared_ptr<const SchemaPlan> plan_;
  std::shared_ptr<const ArgumentMarkup> arguments_;
  Nonterminal start_ = 0;
  std::vector<State> states_;
  std::map<State, Nonterminal> index_;
  std::map<std::tuple<uint32_t, uint32_t, size_t, bool>, Rx> key_terminals_;  // of the one arena that expand() is given
};

}  // namespace deepinfer
