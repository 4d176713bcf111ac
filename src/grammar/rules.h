// grammar/rules.h - the grammar's intermediate form: rules over terminals, expanded when they are first needed.
//
// A nonterminal is a number whose productions a RuleSource writes on demand. So the states of a JSON object (which
// properties have been seen) are nonterminals of their own, and only those that an answer reaches ever exist.
// A terminal is a regular expression (grammar/regex.h). Terminals and rules may be empty.
// Threads: one thread at a time; clone() for another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/lexer.h"

namespace deepinfer {

using Nonterminal = uint32_t;

struct Symbol {
  enum class Kind : uint8_t { kEnd, kTerminal, kNonterminal };
  Kind kind = Kind::kEnd;
  uint32_t id = 0;
  static Symbol terminal(Rx rx) { return {Kind::kTerminal, rx}; }
  static Symbol nonterminal(Nonterminal id) { return {Kind::kNonterminal, id}; }
};

using Production = std::vector<Symbol>;

class RuleSource {
 public:
  virtual ~RuleSource() = default;
  virtual std::unique_ptr<RuleSource> clone() const = 0;
  virtual Nonterminal start() const = 0;
  // The productions of `rule`, whose terminals live in `arena`. The same call gives the same answer.
  virtual std::vector<Production> expand(Nonterminal rule, RegexArena& arena) = 0;
  // What `rule` of `from` is here; one of them is a clone of the other, or both are of a third.
  virtual Nonterminal adopt(const RuleSource& from, Nonterminal rule) = 0;
};

// Rules that are known from the beginning.
class FixedRules final : public RuleSource {
 public:
  Nonterminal add() {
    rules_.emplace_back();
    return static_cast<Nonterminal>(rules_.size() - 1);
  }
  void add(Nonterminal rule, Production production) { rules_[rule].push_back(std::move(production)); }
  void set_start(Nonterminal rule) { start_ = rule; }
  const std::vector<Production>& productions(Nonterminal rule) const { return rules_[rule]; }
  size_t size() const { return rules_.size(); }

  std::unique_ptr<RuleSource> clone() const override { return std::make_unique<FixedRules>(*this); }
  Nonterminal start() const override { return start_; }
  std::vector<Production> expand(Nonterminal rule, RegexArena&) override { return rules_[rule]; }
  Nonterminal adopt(const RuleSource&, Nonterminal rule) override { return rule; }

 private:
  std::vector<std::vector<Production>> rules_;
  Nonterminal start_ = 0;
};

}  // namespace deepinfer
