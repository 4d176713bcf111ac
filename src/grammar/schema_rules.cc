#include "grammar/schema_rules.h"

#include <tuple>

#include "base/json.h"
#include "grammar/char_class.h"
#include "grammar/json_text.h"
#include "grammar/number_text.h"

namespace deepinfer {
namespace {

// Between its quotes.
Rx argument_name(RegexArena& arena, std::string_view name) {
  std::string written;
  append_json_string(written, name);
  for (size_t at; (at = written.find(' ')) != std::string::npos;) written.replace(at, 1, "\\u0020");
  return arena.literal(std::string_view(written).substr(1, written.size() - 2));
}

Rx without_blanks(RegexArena& arena, Rx text) {
  return arena.intersect({text, arena.repeat(utf8(arena, {{0, 0x1F}, {0x21, 0x10FFFF}}), 0, kNoLimit)});
}

// Behind a name.
Rx key_end(RegexArena& arena, bool json) {
  const Rx space = json_space(arena), quote = arena.literal("\"");
  return json ? arena.concat({quote, space, arena.literal(":"), space}) : quote;
}

}  // namespace

SchemaRules::SchemaRules(std::shared_ptr<const SchemaPlan> plan, std::shared_ptr<const ArgumentMarkup> arguments)
    : plan_(std::move(plan)), arguments_(std::move(arguments)), start_(plan_->root) {
  if (arguments_) start_ = state({.value = plan_->root, .kind = Kind::kTop, .at = {}});
}

bool SchemaRules::State::operator<(const State& other) const {
  return std::tie(value, shape, kind, begun, at.count, at.met, at.words) <
         std::tie(other.value, other.shape, other.kind, other.begun, other.at.count, other.at.met, other.at.words);
}

Nonterminal SchemaRules::state(State state) {
  const auto number = static_cast<Nonterminal>(plan_->values.size() + states_.size());
  const auto [entry, added] = index_.try_emplace(state, number);
  if (added) states_.push_back(std::move(state));
  return entry->second;
}

SchemaRules::State SchemaRules::first_object(uint32_t value, uint32_t shape, Kind kind) const {
  return {.value = value, .shape = shape, .kind = kind, .at = plan_->values[value].objects[shape].first()};
}

std::vector<Production> SchemaRules::expand(Nonterminal rule, RegexArena& arena) {
  if (rule < plan_->values.size()) return value_rules(rule, arena);
  const State state = states_[rule - plan_->values.size()];
  switch (state.kind) {
    case Kind::kArray: return array_rules(state, arena);
    case Kind::kTop: return top_rules(state.value);
    case Kind::kArgument: return argument_rules(state.value, arena);
    case Kind::kKey:
    case Kind::kArgumentKey: return key_rules(state, arena);
    case Kind::kObject:
    case Kind::kArguments: break;
  }
  return object_rules(state, arena);
}

Nonterminal SchemaRules::adopt(const RuleSource& from, Nonterminal rule) {
  if (rule < plan_->values.size()) return rule;
  return state(static_cast<const SchemaRules&>(from).states_[rule - plan_->values.size()]);
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
  for (uint32_t i = 0; i < plan.objects.size(); ++i) add("{", first_object(value, i, Kind::kObject));
  for (uint32_t i = 0; i < plan.arrays.size(); ++i) {
    const std::vector<uint32_t> counts(plan.arrays[i].counts.size(), 0);
    add("[", {.value = value, .shape = i, .kind = Kind::kArray, .at = {.words = counts}});
  }
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
    out.push_back({Symbol::nonterminal(state(first_object(value, i, Kind::kArguments)))});
  }
  return out;
}

std::vector<Production> SchemaRules::argument_rules(uint32_t value, RegexArena& arena) {
  std::vector<Production> out;
  const Rx end = arena.literal(arguments_->end), json = arena.literal(arguments_->json);
  const Rx text = arena.with_plain_hosts(plan_->values[value].scalars.text);
  if (text != kNothing) out.push_back({Symbol::terminal(arena.concat({arena.literal(arguments_->text), text, end}))});
  const Rx single = scalars(value, arena, false);
  if (single != kNothing) out.push_back({Symbol::terminal(arena.concat({json, single, end}))});
  add_containers(value, arena, json, end, out);
  return out;
}

// The end of the object where it may come, and the way to one more key up to its opening quote. The keys themselves are a rule
// of their own: what stands before them is the same whichever have been seen, and so are its masks.
std::vector<Production> SchemaRules::object_rules(const State& now, RegexArena& arena) {
  const ObjectPlan& plan = plan_->values[now.value].objects[now.shape];
  const bool json = now.kind == Kind::kObject;
  const Rx space = json_space(arena), quote = arena.literal("\"");
  std::vector<Production> out;
  if (plan.closable(now.at)) {
    out.emplace_back();
    if (json) out[0].push_back(Symbol::terminal(arena.concat(now.begun ? space : kEmptyText, arena.literal("}"))));
  }
  if (key_choices(now, arena).empty()) return out;
  Rx before = now.begun ? arena.concat({space, arena.literal(","), space, quote}) : quote;
  if (!json) before = arena.literal((now.begun ? arguments_->between : "") + arguments_->begin + "\"");
  State keys = now;
  keys.kind = json ? Kind::kKey : Kind::kArgumentKey;
  out.push_back({Symbol::terminal(before), Symbol::nonterminal(state(std::move(keys)))});
  return out;
}

std::vector<SchemaRules::KeyChoice> SchemaRules::key_choices(const State& now, RegexArena& arena) const {
  const ObjectPlan& plan = plan_->values[now.value].objects[now.shape];
  std::vector<KeyChoice> out;
  // Where no choice is open, what a key leaves to come is known without asking.
  const bool open = (plan.wanted & ~now.at.met) != 0;
  const int64_t needed = plan.needed(now.at), room = plan.max - now.at.count;
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const ObjectPlan::Entry& entry = plan.entries[i];
    if (now.at.seen(i) || (!open && room < needed + (entry.required ? 0 : 1))) continue;
    for (const ObjectPlan::Value& value : entry.values) {
      if (plan.is_idle(now.at, i, value)) continue;
      KeyChoice choice{.entry = i, .text = kNothing, .value = value.value, .then = plan.next(now.at, i, value)};
      if (!open || plan.viable(choice.then)) out.push_back(std::move(choice));
    }
  }
  if (room < needed + 1) return out;
  const bool json = now.kind == Kind::kObject || now.kind == Kind::kKey;
  for (const ObjectPlan::Class& keys : plan.classes) {
    const Rx text = json ? keys.text : arena.with_plain_hosts(without_blanks(arena, keys.text));
    if (arena.alive(text)) out.push_back({.entry = std::nullopt, .text = text, .value = keys.value, .then = plan.next(now.at)});
  }
  return out;
}

// Objects of hundreds of keys ask for each of them again at every place, dozens of like objects side by side.
Rx SchemaRules::key_terminal(const State& now, size_t entry, RegexArena& arena) {
  const bool json = now.kind == Kind::kKey;
  const auto [found, added] = key_terminals_.try_emplace({now.value, now.shape, entry, json}, kNothing);
  if (!added) return found->second;
  const std::string& text = plan_->values[now.value].objects[now.shape].entries[entry].name;
  const Rx name = json ? arena.json_body(arena.literal(text)) : argument_name(arena, text);
  return found->second = arena.concat(name, key_end(arena, json));
}

// Behind the opening quote of a key: the rest of its name, its value, and the object with it.
std::vector<Production> SchemaRules::key_rules(const State& now, RegexArena& arena) {
  const bool json = now.kind == Kind::kKey;
  std::vector<Production> out;
  for (KeyChoice& choice : key_choices(now, arena)) {
    State next{.value = now.value,
               .shape = now.shape,
               .kind = json ? Kind::kObject : Kind::kArguments,
               .begun = true,
               .at = std::move(choice.then)};
    Rx key;
    if (choice.entry) {
      key = key_terminal(now, *choice.entry, arena);
    } else {
      const Rx name = choice.text == plan_->any_text ? plan_->free_body : arena.json_body(arena.with_plain_hosts(choice.text));
      key = arena.concat(name, key_end(arena, json));
    }
    Symbol value = Symbol::nonterminal(choice.value);
    if (!json) value = Symbol::nonterminal(state({.value = choice.value, .kind = Kind::kArgument, .at = {}}));
    out.push_back({Symbol::terminal(key), value, Symbol::nonterminal(state(std::move(next)))});
  }
  return out;
}

std::vector<Production> SchemaRules::array_rules(const State& now, RegexArena& arena) {
  const ArrayPlan& plan = plan_->values[now.value].arrays[now.shape];
  const ArrayState at{.index = now.at.count, .met = now.at.met, .counts = {now.at.words.begin(), now.at.words.end()}};
  const Rx space = json_space(arena);
  std::vector<Production> out;
  if (plan.closable(at)) out.push_back({Symbol::terminal(arena.concat(now.begun ? space : kEmptyText, arena.literal("]")))});
  if (at.index >= plan.max) return out;
  for (const ArrayPlan::Choice& choice : plan.segment(at.index).choices) {
    const ArrayState after = plan.next(at, choice);
    if (!plan.viable(after)) continue;
    State next = now;
    next.begun = true;
    next.at = {.words = {after.counts.begin(), after.counts.end()}, .met = after.met, .count = after.index};
    Production production;
    if (now.begun) production.push_back(Symbol::terminal(arena.concat({space, arena.literal(","), space})));
    production.push_back(Symbol::nonterminal(choice.value));
    production.push_back(Symbol::nonterminal(state(std::move(next))));
    out.push_back(std::move(production));
  }
  return out;
}

}  // namespace deepinfer
