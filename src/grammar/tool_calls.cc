#include "grammar/tool_calls.h"

#include <fmt/format.h>

#include "grammar/char_class.h"
#include "grammar/ebnf.h"
#include "grammar/json_text.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema_compile.h"

namespace deepinfer {
namespace {

// A grammar of fixed rules with others inside: of fixed rule `parts[i]` the productions are those of the start of source i.
class JoinedRules final : public RuleSource {
 public:
  static constexpr Nonterminal kMaxFixed = 1024;

  FixedRules& fixed() { return fixed_; }
  Symbol add(std::unique_ptr<RuleSource> source) {
    sources_.push_back(std::move(source));
    return Symbol::nonterminal(outer(sources_.size() - 1, sources_.back()->start()));
  }

  std::unique_ptr<RuleSource> clone() const override {
    auto out = std::make_unique<JoinedRules>();
    out->fixed_ = fixed_;
    for (const auto& source : sources_) out->sources_.push_back(source->clone());
    return out;
  }
  Nonterminal start() const override { return fixed_.start(); }
  std::vector<Production> expand(Nonterminal rule, RegexArena& arena) override {
    if (rule < kMaxFixed) return fixed_.expand(rule, arena);
    const size_t source = (rule - kMaxFixed) % kMaxSources;
    std::vector<Production> out = sources_[source]->expand((rule - kMaxFixed) / kMaxSources, arena);
    for (Production& production : out) {
      for (Symbol& symbol : production) {
        if (symbol.kind == Symbol::Kind::kNonterminal) symbol.id = outer(source, symbol.id);
      }
    }
    return out;
  }
  Nonterminal adopt(const RuleSource& from, Nonterminal rule) override {
    if (rule < kMaxFixed) return rule;
    const size_t source = (rule - kMaxFixed) % kMaxSources;
    const RuleSource& other = *static_cast<const JoinedRules&>(from).sources_[source];
    return outer(source, sources_[source]->adopt(other, (rule - kMaxFixed) / kMaxSources));
  }
  bool full() const { return sources_.size() >= kMaxSources; }

 private:
  static constexpr Nonterminal kMaxSources = 1024;
  static Nonterminal outer(size_t source, Nonterminal rule) {
    return kMaxFixed + rule * kMaxSources + static_cast<Nonterminal>(source);
  }

  FixedRules fixed_;
  std::vector<std::unique_ptr<RuleSource>> sources_;
};

class FormCompiler {
 public:
  FormCompiler(const ToolCallForm& form, const CompileLimits& limits)
      : form_(form),
        markup_(form.markup),
        limits_(limits),
        lexer_(limits.regex),
        arguments_(std::make_shared<const ArgumentMarkup>(form.markup.argument)) {}

  ConstraintResult compile(std::shared_ptr<const Vocabulary> vocabulary) {
    arena().start_clock();
    FixedRules& fixed = rules_->fixed();
    const Nonterminal start = fixed.add(), body = fixed.add(), calls = fixed.add();
    fixed.set_start(start);
    Production first;
    if (form_.thinking)
      first.push_back(
          Symbol::terminal(arena().concat(without({markup_.mark, markup_.end_thinking}), literal(markup_.end_thinking))));
    first.push_back(Symbol::nonterminal(body));
    DI_TRY(any_arguments_, compile_parameters(any_object()));
    fixed.add(start, std::move(first));
    DI_CHECK_OK(add_body(body, calls));
    DI_CHECK_OK(add_calls(calls));
    auto out = std::make_shared<const Constraint>(std::move(vocabulary), lexer_, std::move(rules_));
    if (out->exhausted()) return too_large("the schemas of the tools are too complex together: simplify them");
    if (out->impossible()) return invalid_argument("no answer fits the tools and the format");
    return std::shared_ptr<const Constraint>(std::move(out));
  }

 private:
  RegexArena& arena() { return lexer_.arena(); }
  Rx literal(std::string_view text) { return lexer_.arena().literal(text); }
  Rx without(const std::vector<std::string_view>& marks) { return texts_without(arena(), marks); }

  // What stands before the calls, or instead of them.
  Status add_body(Nonterminal body, Nonterminal calls) {
    FixedRules& fixed = rules_->fixed();
    const auto add_opening = [&](Rx before) {
      fixed.add(body, {Symbol::terminal(arena().concat(before, literal(markup_.open))), Symbol::nonterminal(calls)});
    };
    if (form_.required && form_.opened) {
      fixed.add(body, {Symbol::nonterminal(calls)});
      return {};
    }
    if (form_.required) return add_opening(literal(markup_.lead)), Status();
    if (form_.schema) {
      auto plan = compile_plan(arena(), *form_.schema, {}, {markup_.mark});
      if (!plan) return plan.error();
      fixed.add(body, {rules_->add(std::make_unique<SchemaRules>(*plan))});
    } else if (form_.regex) {
      DI_TRY(const Rx text, parse_regex(arena(), *form_.regex, RegexUse::kWhole));
      fixed.add(body, {Symbol::terminal(arena().intersect({text, without({markup_.mark})}))});
    } else if (form_.ebnf) {
      if (form_.ebnf->size() > limits_.max_source_bytes) return too_large("the grammar is larger than 1 MiB");
      DI_TRY(auto rules, parse_ebnf(arena(), *form_.ebnf, {markup_.mark}));
      fixed.add(body, {rules_->add(std::move(rules))});
    } else {
      fixed.add(body, {Symbol::terminal(without({markup_.mark}))});
      return add_opening(without({markup_.mark})), Status();
    }
    return add_opening(literal(markup_.lead)), Status();
  }

  Status add_calls(Nonterminal calls) {
    FixedRules& fixed = rules_->fixed();
    if (form_.max_calls < 0) return invalid_argument("the number of calls cannot be below 0");
    if (form_.max_calls > ToolCallForm::kMaxCounted) return too_large("the number of calls can be held to at most 128");
    const Nonterminal call = fixed.add();
    for (const ToolCallForm::Tool& tool : form_.tools) {
      if (rules_->full()) return too_large("there are too many tools to hold calls to their schemas");
      DI_TRY(auto plan, plan_of(tool));
      fixed.add(call, {Symbol::terminal(literal(markup_.call + tool.name + markup_.named)),
                       rules_->add(std::make_unique<SchemaRules>(std::move(plan), arguments_))});
    }
    const Rx end_call = literal(markup_.end_call), close = literal(markup_.close);
    // One rule for any number, else one for each call that may still come.
    for (int64_t left = form_.max_calls;; --left) {
      const Nonterminal more = fixed.add();
      fixed.add(calls, {Symbol::nonterminal(call), Symbol::terminal(end_call), Symbol::nonterminal(more)});
      fixed.add(more, {Symbol::terminal(close)});
      if (left == 1) return {};
      const Nonterminal next = left == 0 ? calls : fixed.add();
      fixed.add(more, {Symbol::nonterminal(next)});
      if (left == 0) return {};
      calls = next;
    }
  }

  using Plan = std::shared_ptr<const SchemaPlan>;

  static Json any_object() {
    Json any = Json::object();
    any.set("type", "object");
    return any;
  }

  Result<Plan> compile_parameters(const Json& schema) {
    if (schema.dump().size() > limits_.max_source_bytes) return too_large("the JSON Schema is larger than 1 MiB");
    DI_TRY(auto plan, compile_plan(arena(), schema, {}, {markup_.end_mark}));
    if (plan->values[plan->root].objects.empty()) return invalid_argument("JSON Schema at #: no object satisfies the schema");
    return plan;
  }

  Result<Plan> plan_of(const ToolCallForm::Tool& tool) {
    if (!tool.parameters || (tool.parameters->is_object() && tool.parameters->members().empty())) return any_arguments_;
    if (tool.strict) {
      auto plan = compile_parameters(*tool.parameters);
      if (!plan) return Error{plan.error().code, fmt::format("tool '{}': {}", tool.name, plan.error().message)};
      return plan;
    }
    if (spent_) return any_arguments_;
    const Lexer before = lexer_;
    if (auto plan = compile_parameters(*tool.parameters)) return plan;
    // Whatever it left behind, an exhausted arena above all, must not fail the tools that can be held to their schemas.
    spent_ = arena().exhausted();
    lexer_ = before;
    if (spent_) arena().start_clock();
    return any_arguments_;
  }

  const ToolCallForm& form_;
  const CallMarkup& markup_;
  const CompileLimits limits_;
  Lexer lexer_;
  Plan any_arguments_;  // well-formed, no more
  bool spent_ = false;  // a schema that was not promised used up the time or the room: no other one of that kind is tried
  std::shared_ptr<const ArgumentMarkup> arguments_;
  std::unique_ptr<JoinedRules> rules_ = std::make_unique<JoinedRules>();
};

}  // namespace

ConstraintResult compile_tool_calls(std::shared_ptr<const Vocabulary> vocabulary, const ToolCallForm& form,
                                    const CompileLimits& limits) {
  return FormCompiler(form, limits).compile(std::move(vocabulary));
}

}  // namespace deepinfer
