#include "grammar/schema_shapes.h"

#include <algorithm>
#include <tuple>

#include "grammar/char_class.h"
#include "grammar/number_text.h"

namespace deepinfer {
namespace {

// Shapes of one schema, and steps of one compilation. Real schemas stay below 40 and 20,000.
constexpr size_t kMaxShapes = 400, kMaxConditions = 2'000;
constexpr int64_t kMaxSteps = 400'000;
constexpr size_t kMaxKeyClasses = 64;
constexpr const char* kTooComplex = "its patterns and bounds take too long to be worked out: simplify them";
constexpr const char* kCircular = "a $ref leads to itself without an object or array between";

}  // namespace

SchemaShapes::SchemaShapes(SchemaAlgebra& algebra, RegexArena& arena, Rx strings, Rx free_body)
    : algebra_(algebra),
      arena_(arena),
      any_text_(strings),
      free_body_(free_body),
      any_number_(plain_number(arena)),
      narrow_(strings != deepinfer::any_text(arena)) {}

template <>
SchemaShapes::Memo<ObjectShape>& SchemaShapes::memo() {
  return object_memo_;
}
template <>
SchemaShapes::Memo<ArrayShape>& SchemaShapes::memo() {
  return array_memo_;
}

void SchemaShapes::count_step() {
  if (++steps_ > kMaxSteps) fail_too_large();
  if (arena_.out_of_time()) fail("", kTooComplex);
}

// ---- scalars ---------------------------------------------------------------------------------------------------

const Scalars& SchemaShapes::scalars(SchemaId id) {
  if (const auto found = scalars_.find(id); found != scalars_.end()) return found->second;
  if (!open_scalars_.insert(id).second) fail("$ref", kCircular);
  const Scalars out = problem_.empty() ? work_out(id) : Scalars{};
  open_scalars_.erase(id);
  return scalars_.insert_or_assign(id, out).first->second;
}

Scalars SchemaShapes::work_out(SchemaId id) {
  const SchemaAlgebra::Node node = algebra_.node(id);
  switch (node.kind) {
    case Kind::kNone: return {};
    case Kind::kAny: return {kNullType | kFalseType | kTrueType, any_text_, any_number_};
    case Kind::kAtom: return of_atom(algebra_.atom_of(id));
    case Kind::kNot: return complement(scalars(node.parts[0]));
    // Not defined yet are only the names of propertyNames, which say nothing of scalars.
    case Kind::kName: return scalars(node.parts.empty() ? kAnyValue : node.parts[0]);
    case Kind::kOneOf: {
      Scalars one, two;
      for (const SchemaId part : node.parts) {
        const Scalars more = scalars(part);
        two = joined(two, joined(one, more, true), false);
        one = joined(one, more, false);
      }
      return joined(one, complement(two), true);
    }
    case Kind::kAnd:
    case Kind::kOr: break;
  }
  Scalars out = scalars(node.parts[0]);
  for (size_t i = 1; i < node.parts.size(); ++i) out = joined(out, Scalars(scalars(node.parts[i])), node.kind == Kind::kAnd);
  return out;
}

Scalars SchemaShapes::of_atom(const SchemaAtom& atom) {
  const uint32_t others = kNullType | kFalseType | kTrueType;
  switch (atom.kind) {
    case SchemaAtom::Kind::kTypes:
      return {atom.types & others, atom.types & kStringType ? any_text_ : kNothing,
              atom.types & kNumberType ? any_number_ : kNothing};
    case SchemaAtom::Kind::kText: return {others, within_strings(atom.text), any_number_};
    case SchemaAtom::Kind::kNumber: return {others, any_text_, atom.text, atom.integral};
    default: return {others, any_text_, any_number_};
  }
}

Rx SchemaShapes::within_strings(Rx text) {
  return narrow_ && !arena_.is_host_name(text) ? arena_.intersect({any_text_, text})
                                               : text;  // no mark is made of letters and dots
}

Scalars SchemaShapes::joined(const Scalars& a, const Scalars& b, bool is_and) {
  const auto join = [&](Rx x, Rx y, Rx all) {
    if (x == y) return x;
    if (is_and) return x == all ? y : y == all ? x : arena_.intersect({x, y});
    return x == all || y == all ? all : arena_.alternate({x, y});
  };
  const bool first = a.integral || a.number == kNothing, second = b.integral || b.number == kNothing;
  return {is_and ? a.types & b.types : a.types | b.types, join(a.text, b.text, any_text_), join(a.number, b.number, any_number_),
          is_and ? first || second : first && second};
}

Scalars SchemaShapes::complement(const Scalars& a) {
  const auto without = [&](Rx x, Rx all) {
    return x == kNothing ? all : x == all ? kNothing : arena_.intersect({all, arena_.complement(x)});
  };
  return {~a.types & (kNullType | kFalseType | kTrueType), without(a.text, any_text_), without(a.number, any_number_)};
}

// ---- shapes ----------------------------------------------------------------------------------------------------

template <class Shape>
const std::vector<Shape>& SchemaShapes::shapes(SchemaId id, bool negated) {
  Memo<Shape>& known = memo<Shape>();
  const std::pair key(id, negated);
  if (const auto found = known.done.find(key); found != known.done.end()) return found->second;
  if (!known.open.insert(key).second) fail("$ref", kCircular);
  count_step();
  std::vector<Shape> out;
  if (problem_.empty()) out = expand<Shape>(id, negated);
  std::erase_if(out, [&](Shape& shape) { return surely_empty(shape); });
  if (out.size() > kMaxShapes) fail_too_large();
  known.open.erase(key);
  return known.done.insert_or_assign(key, std::move(out)).first->second;
}

const std::vector<ObjectShape>& SchemaShapes::objects(SchemaId id, bool negated) { return shapes<ObjectShape>(id, negated); }
const std::vector<ArrayShape>& SchemaShapes::arrays(SchemaId id, bool negated) { return shapes<ArrayShape>(id, negated); }

namespace {

template <class Condition>
void append(std::vector<Condition>& to, const std::vector<Condition>& more) {
  for (const Condition& condition : more) {
    if (std::find(to.begin(), to.end(), condition) == to.end()) to.push_back(condition);
  }
}

// Shapes that say nothing but that one of some keys is there are one shape together.
void join_choices(std::vector<ObjectShape>& shapes) {
  ObjectShape::Choice joined;
  std::erase_if(shapes, [&](const ObjectShape& shape) {
    const bool alone = shape.every.empty() && shape.some.size() == 1 && shape.min == 0 && shape.max == kUnbounded;
    if (alone) joined.insert(joined.end(), shape.some[0].begin(), shape.some[0].end());
    return alone;
  });
  std::sort(joined.begin(), joined.end(),
            [](const auto& a, const auto& b) { return std::tie(a.keys, a.value) < std::tie(b.keys, b.value); });
  joined.erase(std::unique(joined.begin(), joined.end()), joined.end());
  if (!joined.empty()) shapes.push_back({.every = {}, .some = {std::move(joined)}});
}

void join_choices(std::vector<ArrayShape>&) {}

// What follows compares the conditions of a choice with each other.
bool too_wide(const std::vector<ObjectShape>& shapes) {
  return std::any_of(shapes.begin(), shapes.end(), [](const ObjectShape& shape) {
    return std::any_of(shape.some.begin(), shape.some.end(), [](const auto& choice) { return choice.size() > kMaxConditions; });
  });
}
bool too_wide(const std::vector<ArrayShape>&) { return false; }

}  // namespace

template <class Shape>
std::vector<Shape> SchemaShapes::expand(SchemaId id, bool negated) {
  const SchemaAlgebra::Node node = algebra_.node(id);
  std::vector<Shape> out;
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kAny:
      if ((node.kind == Kind::kAny) != negated) out.emplace_back();
      return out;
    case Kind::kAtom: atom_shapes(algebra_.atom_of(id), negated, out); return out;
    case Kind::kNot: return shapes<Shape>(node.parts[0], !negated);
    case Kind::kName: return shapes<Shape>(node.parts[0], negated);
    case Kind::kOneOf: return one_of<Shape>(node.parts, negated);
    case Kind::kAnd:
    case Kind::kOr: break;
  }
  if ((node.kind == Kind::kOr) != negated) {
    for (const SchemaId part : node.parts) {
      const std::vector<Shape>& more = shapes<Shape>(part, negated);
      out.insert(out.end(), more.begin(), more.end());
    }
    join_choices(out);
    if (too_wide(out)) fail_too_large();
    return out;
  }
  out.emplace_back();
  for (const SchemaId part : node.parts) {
    if (out.empty() || !problem_.empty()) break;
    out = product(out, shapes<Shape>(part, negated));
  }
  return out;
}

// Exactly one of `parts`. Where two have no value in common, as in most unions, nothing needs to be excluded.
template <class Shape>
std::vector<Shape> SchemaShapes::one_of(const std::vector<SchemaId>& parts, bool negated) {
  std::vector<Shape> out;
  if (negated) {
    out.emplace_back();
    for (const SchemaId part : parts) out = product(out, shapes<Shape>(part, true));
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const std::vector<Shape> both = product(shapes<Shape>(parts[i], false), shapes<Shape>(parts[j], false));
        out.insert(out.end(), both.begin(), both.end());
      }
    }
    return out;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<Shape> alone = shapes<Shape>(parts[i], false);
    std::vector<Shape> only = alone;
    for (size_t j = 0; j < parts.size() && !only.empty() && problem_.empty(); ++j) {
      if (j == i || product(alone, shapes<Shape>(parts[j], false)).empty()) continue;
      only = product(only, shapes<Shape>(parts[j], true));
    }
    out.insert(out.end(), only.begin(), only.end());
  }
  return out;
}

namespace {

ObjectShape merged(ObjectShape a, const ObjectShape& b) {
  append(a.every, b.every);
  append(a.some, b.some);
  a.min = std::max(a.min, b.min);
  a.max = std::min(a.max, b.max);
  return a;
}

ArrayShape merged(ArrayShape a, const ArrayShape& b) {
  append(a.every, b.every);
  append(a.some, b.some);
  append(a.counts, b.counts);
  a.min = std::max(a.min, b.min);
  a.max = std::min(a.max, b.max);
  a.unique |= b.unique;
  return a;
}

}  // namespace

template <class Shape>
std::vector<Shape> SchemaShapes::product(const std::vector<Shape>& a, const std::vector<Shape>& b) {
  std::vector<Shape> out;
  for (const Shape& x : a) {
    for (const Shape& y : b) {
      count_step();
      if (!problem_.empty()) return {};
      Shape both = merged(x, y);
      if (!surely_empty(both)) out.push_back(std::move(both));
    }
  }
  if (out.size() > kMaxShapes) fail_too_large();
  return out;
}

void SchemaShapes::atom_shapes(const SchemaAtom& atom, bool negated, std::vector<ObjectShape>& out) {
  using Atom = SchemaAtom::Kind;
  if (atom.subject() != kObjectType) {
    const bool all = atom.kind != Atom::kTypes || (atom.types & kObjectType);
    if (all != negated) out.emplace_back();
    return;
  }
  if (atom.kind == Atom::kNumKeys) {
    if (!negated) out.push_back({.every = {}, .some = {}, .min = atom.low, .max = atom.high});
    if (negated && atom.low > 0) out.push_back({.every = {}, .some = {}, .min = 0, .max = atom.low - 1});
    if (negated && atom.high < kUnbounded) out.push_back({.every = {}, .some = {}, .min = atom.high + 1});
    return;
  }
  const ObjectShape::Condition condition{atom.keys, negated ? algebra_.negate(atom.value) : atom.value};
  ObjectShape& shape = out.emplace_back();
  if ((atom.kind == Atom::kEveryKey) != negated) {
    shape.every.push_back(condition);
  } else {
    shape.some.push_back({condition});
  }
}

void SchemaShapes::atom_shapes(const SchemaAtom& atom, bool negated, std::vector<ArrayShape>& out) {
  using Atom = SchemaAtom::Kind;
  if (atom.subject() != kArrayType) {
    const bool all = atom.kind != Atom::kTypes || (atom.types & kArrayType);
    if (all != negated) out.emplace_back();
    return;
  }
  const auto ranges = [&](auto add) {
    if (!negated) add(atom.low, atom.high);
    if (negated && atom.low > 0) add(int64_t{0}, atom.low - 1);
    if (negated && atom.high < kUnbounded) add(atom.high + 1, kUnbounded);
  };
  switch (atom.kind) {
    case Atom::kNumItems:
      ranges([&](int64_t low, int64_t high) {
        ArrayShape& shape = out.emplace_back();
        shape.min = low;
        shape.max = high;
      });
      return;
    case Atom::kCount:
      ranges([&](int64_t low, int64_t high) { out.emplace_back().counts.push_back({low, high, atom.value}); });
      return;
    case Atom::kUnique:
      if (negated) fail("uniqueItems", "it stands under a negation");
      out.emplace_back().unique = true;
      return;
    default: break;
  }
  const ArrayShape::Condition condition{atom.low, atom.high, negated ? algebra_.negate(atom.value) : atom.value};
  ArrayShape& shape = out.emplace_back();
  ((atom.kind == Atom::kEveryItem) != negated ? shape.every : shape.some).push_back(condition);
}

// ---- conditions of one key or item ------------------------------------------------------------------------------

SchemaId SchemaShapes::value_of(const ObjectShape& shape, const std::string& name) {
  std::vector<SchemaId> parts;
  for (const auto& condition : shape.every) {
    const bool applies = condition.keys.name ? *condition.keys.name == name : arena_.matches(condition.keys.text, name);
    if (applies) parts.push_back(condition.value);
  }
  for (const auto& choice : shape.some) {
    if (choice.size() == 1 && choice[0].keys.name == name) parts.push_back(choice[0].value);
  }
  return algebra_.all_of(std::move(parts));
}

SchemaId SchemaShapes::value_of(const ArrayShape& shape, int64_t index) {
  std::vector<SchemaId> parts;
  for (const auto& condition : shape.every) {
    if (index >= condition.low && index < condition.high) parts.push_back(condition.value);
  }
  return algebra_.all_of(std::move(parts));
}

std::set<std::string> SchemaShapes::names(const ObjectShape& shape) const {
  std::set<std::string> out;
  const auto add = [&](const std::vector<ObjectShape::Condition>& conditions) {
    for (const auto& condition : conditions) {
      if (condition.keys.name) out.insert(*condition.keys.name);
    }
  };
  add(shape.every);
  for (const auto& choice : shape.some) add(choice);
  return out;
}

std::vector<SchemaShapes::KeyClass> SchemaShapes::other_keys(const ObjectShape& shape) {
  std::vector<Rx> literals;
  for (const std::string& name : names(shape)) literals.push_back(arena_.literal(name));
  const Rx named = arena_.alternate(std::move(literals));
  std::vector<KeyClass> classes{
      {named == kNothing ? any_text_ : arena_.intersect({any_text_, arena_.complement(named)}), kAnyValue}};
  for (const auto& condition : shape.every) {
    if (condition.keys.name) continue;
    std::vector<KeyClass> split;
    for (const KeyClass& keys : classes) {
      const Rx inside = keys.text == any_text_ ? condition.keys.text : arena_.intersect({keys.text, condition.keys.text});
      const Rx outside = arena_.intersect({keys.text, arena_.complement(condition.keys.text)});
      const SchemaId value = algebra_.all_of({keys.value, condition.value});
      if (value == keys.value) {
        split.push_back(keys);
        continue;
      }
      // Where one part is empty the other is the whole, in whose shorter form more can be seen.
      const bool some = arena_.alive(inside), others = condition.keys.text != any_text_ && arena_.alive(outside);
      if (some) split.push_back({others ? inside : keys.text, value});
      if (others) split.push_back({some ? outside : keys.text, keys.value});
    }
    classes = std::move(split);
    if (classes.size() > kMaxKeyClasses) {
      fail("patternProperties", "there are too many combinations of patternProperties");
      return {};
    }
  }
  return classes;
}

}  // namespace deepinfer
