#include "grammar/schema_rules.h"

#include <bit>
#include <tuple>

#include "grammar/char_class.h"
#include "grammar/json_text.h"
#include "grammar/number_text.h"

namespace deepinfer {

bool SchemaRules::State::operator<(const State& other) const {
  return std::tie(value, shape, is_array, begun, count, words) <
         std::tie(other.value, other.shape, other.is_array, other.begun, other.count, other.words);
}

Nonterminal SchemaRules::state(State state) {
  const auto number = static_cast<Nonterminal>(plan_->values.size() + states_.size());
  const auto [entry, added] = index_.try_emplace(state, number);
  if (added) states_.push_back(std::move(state));
  return entry->second;
}

std::vector<Production> SchemaRules::expand(Nonterminal rule, RegexArena& arena) {
  if (rule < plan_->values.size()) return value_rules(rule, arena);
  const State state = states_[rule - plan_->values.size()];
  return state.is_array ? array_rules(state, arena) : object_rules(state, arena);
}

std::vector<Production> SchemaRules::value_rules(uint32_t value, RegexArena& arena) {
  const ValuePlan& plan = plan_->values[value];
  std::vector<Rx> scalars;
  if (plan.scalars.types & kNullType) scalars.push_back(arena.literal("null"));
  if (plan.scalars.types & kFalseType) scalars.push_back(arena.literal("false"));
  if (plan.scalars.types & kTrueType) scalars.push_back(arena.literal("true"));
  if (plan.scalars.text != kNothing) scalars.push_back(json_string(arena, plan.scalars.text));
  if (plan.scalars.number != kNothing) {
    scalars.push_back(plan.scalars.number == plain_number(arena) ? json_number(arena) : plan.scalars.number);
  }
  std::vector<Production> out;
  if (!scalars.empty()) out.push_back({Symbol::terminal(arena.alternate(std::move(scalars)))});
  const Rx space = json_space(arena);
  for (uint32_t i = 0; i < plan.objects.size(); ++i) {
    State first{.value = value, .shape = i, .words = std::vector<uint32_t>((plan.objects[i].entries.size() + 31) / 32, 0)};
    out.push_back({Symbol::terminal(arena.concat(arena.literal("{"), space)), Symbol::nonterminal(state(std::move(first)))});
  }
  for (uint32_t i = 0; i < plan.arrays.size(); ++i) {
    State first{
        .value = value, .shape = i, .is_array = true, .words = std::vector<uint32_t>(plan.arrays[i].counts.size() + 1, 0)};
    out.push_back({Symbol::terminal(arena.concat(arena.literal("["), space)), Symbol::nonterminal(state(std::move(first)))});
  }
  return out;
}

std::vector<Production> SchemaRules::object_rules(const State& now, RegexArena& arena) {
  const ObjectPlan& plan = plan_->values[now.value].objects[now.shape];
  const auto seen = [&](size_t i) { return (now.words[i / 32] >> (i % 32) & 1) != 0; };
  int64_t missing = 0, unseen = 0;
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    unseen += seen(i) ? 0 : 1;
    missing += plan.entries[i].required && !seen(i) ? 1 : 0;
  }
  const Rx space = json_space(arena);
  const Rx before = now.begun ? arena.concat({space, arena.literal(","), space}) : kEmptyText;
  const Rx colon = arena.concat({space, arena.literal(":"), space});
  std::vector<Production> out;
  if (missing == 0 && now.count >= plan.min) {
    out.push_back({Symbol::terminal(arena.concat(now.begun ? space : kEmptyText, arena.literal("}")))});
  }
  // How many keys matters only up to a bound.
  const auto counted = [&](int64_t count) { return plan.max == kUnbounded ? std::min(count, plan.min) : count; };
  const auto add = [&](Rx name, uint32_t value, State next) {
    next.begun = true;
    next.count = counted(now.count + 1);
    out.push_back({Symbol::terminal(arena.concat({before, name, colon})), Symbol::nonterminal(value),
                   Symbol::nonterminal(state(std::move(next)))});
  };
  const int64_t room = plan.max - now.count;
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const ObjectPlan::Entry& entry = plan.entries[i];
    if (seen(i) || room < missing + (entry.required ? 0 : 1)) continue;
    State next = now;
    next.words[i / 32] |= 1u << (i % 32);
    add(json_string(arena, arena.literal(entry.name)), entry.value, std::move(next));
  }
  if (room >= missing + 1) {
    for (const ObjectPlan::Class& keys : plan.classes) add(json_string(arena, keys.text), keys.value, now);
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
