#include "grammar/ebnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "grammar/constraint.h"
#include "grammar/ebnf_syntax.h"
#include "grammar/json_text.h"

namespace deepinfer {
namespace {

using Kind = EbnfExpression::Kind;

// Counts around rules that recur are written out.
constexpr int32_t kMaxWritten = 1000;
constexpr int kMaxChain = 2000;  // of rules that name each other

class Builder {
 public:
  Builder(RegexArena& arena, const EbnfGrammar& grammar, const std::vector<std::string_view>& marks)
      : arena_(arena),
        grammar_(grammar),
        marks_(marks),
        states_(grammar.rules.size()),
        regular_(grammar.rules.size()),
        rules_(std::make_unique<FixedRules>()) {}

  Result<std::unique_ptr<FixedRules>> build() {
    for (size_t i = 0; i < grammar_.rules.size(); ++i) {
      rules_->add();
      find_regular(i, 0);
    }
    if (too_deep_) return too_large("grammar: rules name each other in a chain of more than 2,000");
    if (!marks_.empty()) keep_out_marks();
    for (size_t i = 0; i < grammar_.rules.size(); ++i) {
      const EbnfExpression& body = grammar_.rules[i].body;
      if (regular_[i]) {
        rules_->add(static_cast<Nonterminal>(i), {Symbol::terminal(*regular_[i])});
      } else {
        DI_CHECK_OK(choices(static_cast<Nonterminal>(i), body));
      }
    }
    rules_->set_start(static_cast<Nonterminal>(grammar_.start));
    if (arena_.exhausted()) return too_large("grammar: it is too complex, simplify it");
    DI_CHECK_OK(check_productive());
    return std::move(rules_);
  }

 private:
  enum class State { kNew, kOpen, kDone };

  // A rule that does not lead to itself is one regular expression.
  std::optional<Rx> find_regular(size_t rule, int depth) {
    if (states_[rule] == State::kDone) return regular_[rule];
    if (states_[rule] == State::kOpen) return std::nullopt;
    if (depth > kMaxChain) {
      too_deep_ = true;
      return std::nullopt;
    }
    states_[rule] = State::kOpen;
    regular_[rule] = regular(grammar_.rules[rule].body, depth + 1);
    states_[rule] = State::kDone;
    return regular_[rule];
  }

  std::optional<Rx> regular(const EbnfExpression& expression, int depth) {
    if (expression.kind == Kind::kTerminal) return without_.empty() ? expression.terminal : narrowed(expression.terminal);
    if (expression.kind == Kind::kRule) return find_regular(expression.rule, depth);
    std::vector<Rx> parts;
    bool all = true;
    for (const EbnfExpression& part : expression.parts) {
      const std::optional<Rx> rx = regular(part, depth);
      all &= rx.has_value();
      if (rx) parts.push_back(*rx);
    }
    if (!all) return std::nullopt;
    if (expression.kind == Kind::kRepeat) return arena_.repeat(parts[0], expression.min, expression.max);
    if (expression.kind == Kind::kChoice) return arena_.alternate(std::move(parts));
    Rx out = kEmptyText;
    for (size_t i = parts.size(); i-- > 0;) out = arena_.concat(parts[i], out);
    return out;
  }

  // Of rules that recur the parts are narrowed, of others the whole.
  void keep_out_marks() {
    if (std::optional<Rx>& whole = regular_[grammar_.start]) {
      whole = arena_.intersect({*whole, texts_without(arena_, marks_)});
      return;
    }
    for (const std::string_view mark : marks_) {
      const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
      const auto first = std::find_if_not(mark.begin(), mark.end(), is_ascii);
      const auto end = std::find_if(first + 1, mark.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
      without_.emplace_back(first, end);
    }
    std::fill(states_.begin(), states_.end(), State::kNew);
    for (size_t i = 0; i < grammar_.rules.size(); ++i) find_regular(i, 0);
  }

  Rx narrowed(Rx terminal) {
    const Rx allowed = texts_without(arena_, without_);
    const bool clean = !arena_.alive(arena_.intersect({terminal, arena_.complement(allowed)}));
    return clean ? terminal : arena_.intersect({terminal, allowed});
  }

  Status choices(Nonterminal rule, const EbnfExpression& expression) {
    if (expression.kind != Kind::kChoice) {
      Production production;
      DI_CHECK_OK(append(expression, production));
      rules_->add(rule, std::move(production));
      return {};
    }
    for (const EbnfExpression& part : expression.parts) {
      Production production;
      DI_CHECK_OK(append(part, production));
      rules_->add(rule, std::move(production));
    }
    return {};
  }

  Status append(const EbnfExpression& expression, Production& out) {
    if (const std::optional<Rx> rx = regular(expression, 0)) {
      if (*rx != kEmptyText) out.push_back(Symbol::terminal(*rx));
      return {};
    }
    switch (expression.kind) {
      case Kind::kTerminal: break;
      case Kind::kRule: out.push_back(Symbol::nonterminal(static_cast<Nonterminal>(expression.rule))); break;
      case Kind::kSequence:
        for (const EbnfExpression& part : expression.parts) DI_CHECK_OK(append(part, out));
        break;
      case Kind::kChoice: {
        const Nonterminal choice = rules_->add();
        DI_CHECK_OK(choices(choice, expression));
        out.push_back(Symbol::nonterminal(choice));
        break;
      }
      case Kind::kRepeat: return append_repeat(expression, out);
    }
    return {};
  }

  Status append_repeat(const EbnfExpression& expression, Production& out) {
    if (expression.min > kMaxWritten || expression.max > kMaxWritten)
      return too_large("grammar: a count above 1,000 around a rule that recurs");
    const Nonterminal unit = rules_->add();
    DI_CHECK_OK(choices(unit, expression.parts[0]));
    for (int32_t i = 0; i < expression.min; ++i) out.push_back(Symbol::nonterminal(unit));
    if (expression.max == kNoLimit) {
      const Nonterminal more = rules_->add();
      rules_->add(more, {});
      rules_->add(more, {Symbol::nonterminal(unit), Symbol::nonterminal(more)});
      out.push_back(Symbol::nonterminal(more));
    }
    Nonterminal rest = 0;
    for (int32_t i = expression.min; i < expression.max; ++i) {
      const Nonterminal more = rules_->add();
      rules_->add(more, {});
      Production production{Symbol::nonterminal(unit)};
      if (i > expression.min) production.push_back(Symbol::nonterminal(rest));
      rules_->add(more, std::move(production));
      rest = more;
    }
    if (expression.max > expression.min) out.push_back(Symbol::nonterminal(rest));
    return {};
  }

  // Every rule derives some text; else a mask could lead to where nothing fits.
  Status check_productive() {
    std::vector<bool> productive(rules_->size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (Nonterminal rule = 0; rule < rules_->size(); ++rule) {
        if (productive[rule]) continue;
        for (const Production& production : rules_->productions(rule)) {
          bool all = true;
          for (const Symbol symbol : production) {
            all &= symbol.kind == Symbol::Kind::kTerminal ? arena_.alive(symbol.id) : productive[symbol.id];
          }
          if (!all) continue;
          productive[rule] = changed = true;
          break;
        }
      }
    }
    for (size_t i = 0; i < grammar_.rules.size(); ++i) {
      if (productive[i]) continue;
      return grammar_.fault(grammar_.rules[i].at, fmt::format("no text satisfies the rule '{}'", grammar_.rules[i].name));
    }
    return {};
  }

  RegexArena& arena_;
  const EbnfGrammar& grammar_;
  const std::vector<std::string_view>& marks_;
  std::vector<std::string_view> without_;  // characters of theirs
  std::vector<State> states_;
  std::vector<std::optional<Rx>> regular_;
  std::unique_ptr<FixedRules> rules_;
  bool too_deep_ = false;
};

}  // namespace

Result<std::unique_ptr<FixedRules>> parse_ebnf(RegexArena& arena, std::string_view text,
                                               const std::vector<std::string_view>& marks) {
  DI_TRY(const EbnfGrammar grammar, parse_ebnf_text(arena, text));
  return Builder(arena, grammar, marks).build();
}

ConstraintResult compile_ebnf(std::shared_ptr<const Vocabulary> vocabulary, std::string_view grammar,
                              const CompileLimits& limits) {
  if (grammar.size() > limits.max_source_bytes) {
    return too_large(fmt::format("the grammar has {} bytes, at most {} are allowed", grammar.size(), limits.max_source_bytes));
  }
  Lexer lexer(limits.regex);
  lexer.arena().start_clock();
  DI_TRY(auto rules, parse_ebnf(lexer.arena(), grammar));
  auto out = std::make_shared<const Constraint>(std::move(vocabulary), lexer, std::move(rules));
  if (out->exhausted()) return too_large("the grammar is too complex: simplify it");
  return std::shared_ptr<const Constraint>(std::move(out));
}

}  // namespace deepinfer
