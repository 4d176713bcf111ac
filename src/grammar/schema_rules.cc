#include "grammar/schema_rules.h"

#include <tuple>

#include "base/json.h"
#include "grammar/char_class.h"
#include "grammar/json_text.h"
#include "grammar/number_text.h"

namespace deepinfer {
namespace {

Rx argument_name(RegexArena& arena, std::string_view name) {
  std::string written;
  append_json_string(written, name);
  for (size_t at; (at = written.find(' ')) != std::string::npos;) written.replace(at, 1, "\\u0020");
  return arena.literal(written);
}

Rx without_blanks(RegexArena& arena, Rx text) {
  return arena.intersect({text, arena.repeat(utf8(arena, {{0, 0x1F}, {0x21, 0x10FFFF}}), 0, kNoLimit)});
}

}  // namespace

SchemaRules::SchemaRules(std::shared_ptr<const SchemaPlan> plan, std::shared_ptr<const ArgumentMarkup> arguments)
    : plan_(std::move(plan)), arguments_(std::move(arguments)), start_(plan_->root) {
  if (arguments_) start_ = state({.value = plan_->root, .kind = Kind::kTop, .words = {}});
}

bool SchemaRules::State::operator<(const State& other) const {
  return std::tie(value, shape, kind, begun, count, words) <
         std::tie(other.value, other.shape, other.kind, other.begun, other.count, other.words);
}

Nonterminal SchemaRules::state(State state) {
  const auto number = static_cast<Nonterminal>(plan_->values.size() + states_.size());
  const auto [entry, added] = index_.try_emplace(state, number);
  if (added) states_.push_back(std::move(state));
  return entry->second;
}

SchemaRules::State SchemaRules::first_state(uint32_t value, uint32_t shape, Kind kind) const {
  const ValuePlan& plan = plan_->values[value];
  const size_t words = kind == Kind::kArray ? plan.arrays[shape].counts.size() + 1 : (plan.objects[shape].entries.size() + 31) / 32;
  return {.value = value, .shape = shape, .kind = kind, .words = std::vector<uint32_t>(words, 0)};
}

std::vector<Production> SchemaRules::expand(Nonterminal rule, RegexArena& arena) {
  if (rule < plan_->values.size()) return value_rules(rule, arena);
  const State state = states_[rule - plan_->values.size()];
  switch (state.kind) {
    case Kind::kArray: return array_rules(state, arena);
    case Kind::kTop: return top_rules(state.value);
    case Kind::kArgument: return argument_rules(state.value, arena);
    case Kind::kObject:
    case Kind::kArguments: break;
  }
  return object_rules(state, arena);
}

Rx SchemaRules::string(RegexArena& arena, Rx text) const {
  if (text != plan_->any_text) return json_string(arena, text);
  return arena.concat({arena.literal("\""), plan_->free_body, arena.literal("\"")});
}

Rx SchemaRules::scalars(uint32_t value, RegexArena& arena, bool strings) const {
  const Scalars& plan = plan_->values[value].scalars;
  std::vector<Rx> out;
  if (plan.types & kNullType) out.push_back(arena.literal("null"));
  if (plan.types & kFalseType) out.push_back(arena.literal("false"));
  if (plan.types & kTrueType) out.push_back(arena.literal("true"));
  if (strings && plan.text != kNothing) out.push_back(string(arena, plan.text));
  if (plan.number != kNothing) out.push_back(plan.number == plain_number(arena) ? json_number(arena) : plan.number);
  return arena.alternate(std::move(out));
}

void SchemaRules::add_containers(uint32_t value, RegexArena& arena, Rx before, Rx behind, std::vector<Production>& out) {
  const ValuePlan& plan = plan_->values[value];
  const Rx space = json_space(arena);
  const auto add = [&](const char* bracket, State first) {
    out.push_back({Symbol::terminal(arena.concat({before, arena.literal(bracket), space})), Symbol::nonterminal(state(first))});
    if (behind != kEmptyText) out.back().push_back(Symbol::terminal(behind));
  };
  for (uint32_t i = 0; i < plan.objects.size(); ++i) add("{", first_state(value, i, Kind::kObject));
  for (uint32_t i = 0; i < plan.arrays.size(); ++i) add("[", first_state(value, i, Kind::kArray));
}

std::vector<Production> SchemaRules::value_rules(uint32_t value, RegexArena& arena) {
  std::vector<Production> out;
  const Rx single = scalars(value, arena, true);
  if (single != kNothing) out.push_back({Symbol::terminal(single)});
  add_containers(value, arena, kEmptyText, kEmptyText, out);
  return out;
}

std::vector<Production> SchemaRules::top_rules(uint32_t value) {
  std::vector<Production> out;
  for (uint32_t i = 0; i < plan_->values[value].objects.size(); ++i) {
    out.push_back({Symbol::nonterminal(state(first_state(value, i, Kind::kArguments)))});
  }
  return out;
}

std::vector<Production> SchemaRules::argument_rules(uint32_t value, RegexArena& arena) {
  std::vector<Production> out;
  const Rx end = arena.literal(arguments_->end), json = arena.literal(arguments_->json);
  const Rx text = plan_->values[value].scalars.text;
  if (text != kNothing) out.push_back({Symbol::terminal(arena.concat({arena.literal(arguments_->text), text, end}))});
  const Rx single = scalars(value, arena, false);
  if (single != kNothing) out.push_back({Symbol::terminal(arena.concat({json, single, end}))});
  add_containers(value, arena, json, end, out);
  return out;
}

// One more key: what stands before it, its name, its value, and the object with it.
Production SchemaRules::key(const State& now, Rx name, uint32_t value, State next, RegexArena& arena) {
  const Nonterminal behind = state(std::move(next));
  if (now.kind == Kind::kArguments) {
    const Rx before = arena.literal((now.begun ? arguments_->between : "") + arguments_->begin);
    return {Symbol::terminal(arena.concat(before, name)),
            Symbol::nonterminal(state({.value = value, .kind = Kind::kArgument, .words = {}})), Symbol::nonterminal(behind)};
  }
  const Rx space = json_space(arena);
  const Rx before = now.begun ? arena.concat({space, arena.literal(","), space}) : kEmptyText;
  const Rx colon = arena.concat({space, arena.literal(":"), space});
  return {Symbol::terminal(arena.concat({before, name, colon})), Symbol::nonterminal(value), Symbol::nonterminal(behind)};
}

std::vector<Production> SchemaRules::object_rules(const State& now, RegexArena& arena) {
  const ObjectPlan& plan = plan_->values[now.value].objects[now.shape];
  const bool json = now.kind == Kind::kObject;
  const auto seen = [&](size_t i) { return (now.words[i / 32] >> (i % 32) & 1) != 0; };
  int64_t missing = 0;
  for (size_t i = 0; i < plan.entries.size(); ++i) missing += plan.entries[i].required && !seen(i) ? 1 : 0;
  std::vector<Production> out;
  if (missing == 0 && now.count >= plan.min) {
    out.emplace_back();
    if (json) out[0].push_back(Symbol::terminal(arena.concat(now.begun ? json_space(arena) : kEmptyText, arena.literal("}"))));
  }
  // How many keys matters only up to a bound.
  const auto counted = [&](int64_t count) { return plan.max == kUnbounded ? std::min(count, plan.min) : count; };
  const auto add = [&](Rx name, uint32_t value, State next) {
    next.begun = true;
    next.count = counted(now.count + 1);
    out.push_back(key(now, name, value, std::move(next), arena));
  };
  const int64_t room = plan.max - now.count;
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const ObjectPlan::Entry& entry = plan.entries[i];
    if (seen(i) || room < missing + (entry.required ? 0 : 1)) continue;
    State next = now;
    next.words[i / 32] |= 1u << (i % 32);
    add(json ? json_string(arena, arena.literal(entry.name)) : argument_name(arena, entry.name), entry.value, std::move(next));
  }
  if (room < missing + 1) return out;
  for (const ObjectPlan::Class& keys : plan.classes) {
    const Rx name = json ? string(arena, keys.text) : json_string(arena, without_blanks(arena, keys.text));
    if (arena.alive(name)) add(name, keys.value, now);
  }
  return out;
}

std::vector<Production> SchemaRules::array_rules(const State& now, RegexArena& arena) {
  const ArrayPlan& plan = plan_->values[now.value].arrays[now.shape];
  ArrayState at{.index = now.count, .met = now.words[0], .counts = {now.words.begin() + 1, now.words.end()}};
  const Rx space = json_space(arena);
  std::vector<Production> out;
  if (plan.closable(at)) out.push_back({Symbol::terminal(arena.concat(now.begun ? space : kEmptyText, arena.literal("]")))});
  if (at.index >= plan.max) return out;
  for (const ArrayPlan::Choice& choice : plan.segment(at.index).choices) {
    const ArrayState after = plan.next(at, choice);
    if (!plan.viable(after)) continue;
    State next = now;
    next.begun = true;
    next.count = after.index;
    next.words[0] = after.met;
    for (size_t i = 0; i < after.counts.size(); ++i) next.words[i + 1] = static_cast<uint32_t>(after.counts[i]);
    Production production;
    if (now.begun) production.push_back(Symbol::terminal(arena.concat({space, arena.literal(","), space})));
    production.push_back(Symbol::nonterminal(choice.value));
    production.push_back(Symbol::nonterminal(state(std::move(next))));
    out.push_back(std::move(production));
  }
  return out;
}

}  // namespace deepinfer
