// The part of grammar/schema_shapes.h that asks whether anything is left.
#include <algorithm>
#include <functional>
#include <iterator>

#include "grammar/array_plan.h"
#include "grammar/schema_shapes.h"

namespace deepinfer {

bool SchemaShapes::surely_empty(SchemaId id) {
  if (id == kNoValue) return true;
  if (id == kAnyValue) return false;
  const Scalars& flat = scalars(id);
  if (flat.types != 0 || arena_.alive(flat.text) || arena_.alive(flat.number)) return false;
  return !may_be(id, kArrayType) && !may_be(id, kObjectType);
}

// False only when no value of `type` can be in the schema, looking at types alone.
bool SchemaShapes::may_be(SchemaId id, uint32_t type) {
  const SchemaAlgebra::Node& node = algebra_.node(id);
  switch (node.kind) {
    case Kind::kNone: return false;
    case Kind::kAny: return true;
    case Kind::kAtom: {
      const SchemaAtom& atom = algebra_.atom_of(id);
      return atom.kind != SchemaAtom::Kind::kTypes || (atom.types & type);
    }
    case Kind::kAnd: return std::all_of(node.parts.begin(), node.parts.end(), [&](SchemaId part) { return may_be(part, type); });
    case Kind::kOneOf:
    case Kind::kOr: return std::any_of(node.parts.begin(), node.parts.end(), [&](SchemaId part) { return may_be(part, type); });
    case Kind::kNot: {
      if (algebra_.node(node.parts[0]).kind != Kind::kAtom) return true;
      const SchemaAtom& atom = algebra_.atom_of(node.parts[0]);
      return atom.kind == SchemaAtom::Kind::kTypes ? !(atom.types & type) : atom.subject() == type;
    }
    case Kind::kName: {
      if (!open_types_.insert(id).second) return true;
      const bool out = may_be(node.parts[0], type);
      open_types_.erase(id);
      return out;
    }
  }
  return true;
}

// Keys that cannot have the value asked for are left out of the choices. Where one is left it must come, which may leave out
// more.
bool SchemaShapes::surely_empty(ObjectShape& shape) {
  if (shape.min > shape.max) return true;
  const auto is_empty = [&](const ObjectShape::Condition& condition) {
    return condition.keys.name && surely_empty(algebra_.all_of({value_of(shape, *condition.keys.name), condition.value}));
  };
  for (size_t known = 0, left = SIZE_MAX; known != left;) {
    left = known;
    known = 0;
    for (ObjectShape::Choice& choice : shape.some) {
      ObjectShape::Choice possible;
      std::copy_if(choice.begin(), choice.end(), std::back_inserter(possible), std::not_fn(is_empty));
      if (possible.empty()) return true;
      choice = std::move(possible);
      known += choice.size() == 1 ? 1 : 0;
    }
  }
  // A choice is met with one that asks for no more.
  std::vector<ObjectShape::Choice> needed;
  const auto is_in = [](const auto& few, const auto& many) {
    return std::all_of(few.begin(), few.end(),
                       [&](const auto& one) { return std::find(many.begin(), many.end(), one) != many.end(); });
  };
  for (size_t i = 0; i < shape.some.size(); ++i) {
    bool more = false;
    for (size_t k = 0; k < shape.some.size() && !more; ++k) {
      more = k != i && is_in(shape.some[k], shape.some[i]) && (k < i || !is_in(shape.some[i], shape.some[k]));
    }
    if (!more) needed.push_back(shape.some[i]);
  }
  shape.some = std::move(needed);
  std::set<std::string> required;
  for (const ObjectShape::Choice& choice : shape.some) {
    if (choice.size() == 1 && choice[0].keys.name) required.insert(*choice[0].keys.name);
  }
  return static_cast<int64_t>(required.size()) > shape.max;
}

bool SchemaShapes::surely_empty(const ArrayShape& shape) {
  if (shape.min > shape.max) return true;
  for (const auto& condition : shape.some) {
    if (condition.low >= shape.max || condition.low >= condition.high) return true;
  }
  return shape.min > 0 && surely_empty(value_of(shape, 0));
}

// The least fixed point by a search that takes what it is looking at as empty: a smallest value needs no schema inside
// itself. "No" is remembered only when nothing was taken for granted.
bool SchemaShapes::inhabited(SchemaId id) {
  if (id == kAnyValue) return true;
  if (const auto found = inhabited_.find(id); found != inhabited_.end()) return found->second;
  if (open_inhabited_.contains(id)) return false;
  count_step();
  if (!problem_.empty()) return true;
  open_inhabited_.insert(id);
  const bool out = find_inhabited(id);
  open_inhabited_.erase(id);
  if (out || open_inhabited_.empty()) inhabited_[id] = out;
  return out;
}

bool SchemaShapes::find_inhabited(SchemaId id) {
  const Scalars flat = scalars(id);
  if (flat.types != 0 || arena_.alive(flat.text) || arena_.alive(flat.number)) return true;
  for (const ArrayShape& shape : std::vector<ArrayShape>(arrays(id))) {
    if (inhabited(shape)) return true;
  }
  for (const ObjectShape& shape : std::vector<ObjectShape>(objects(id))) {
    if (inhabited(shape)) return true;
  }
  return false;
}

// Keys with values, so that of each choice from the given one on a key is among them.
bool SchemaShapes::meet_some(const ObjectShape& shape, size_t from, std::map<std::string, SchemaId>& chosen) {
  if (from == shape.some.size()) return true;
  count_step();
  if (!problem_.empty()) return true;
  for (const auto& condition : shape.some[from]) {
    if (!condition.keys.name) return true;  // refused when it is planned
    const std::string& name = *condition.keys.name;
    const auto found = chosen.find(name);
    const SchemaId before = found != chosen.end() ? found->second : value_of(shape, name);
    if (found == chosen.end() && static_cast<int64_t>(chosen.size()) >= shape.max) continue;
    const SchemaId value = algebra_.all_of({before, condition.value});
    if (!inhabited(value)) continue;
    const bool added = chosen.insert_or_assign(name, value).second;
    if (meet_some(shape, from + 1, chosen)) return true;
    if (added) {
      chosen.erase(name);
    } else {
      chosen[name] = before;
    }
  }
  return false;
}

bool SchemaShapes::inhabited(const ObjectShape& shape) {
  std::map<std::string, SchemaId> chosen;
  if (!meet_some(shape, 0, chosen)) return false;
  auto count = static_cast<int64_t>(chosen.size());
  if (count >= shape.min) return true;
  for (const std::string& name : names(shape)) {
    if (!chosen.contains(name) && inhabited(value_of(shape, name)) && ++count >= shape.min) return true;
  }
  const auto others = other_keys(shape);
  return std::any_of(others.begin(), others.end(), [&](const KeyClass& keys) { return inhabited(keys.value); });
}

bool SchemaShapes::inhabited(const ArrayShape& shape) {
  const ArrayPlan plan = plan_array(*this, shape, [this](SchemaId value) { return inhabited(value) ? value : kNoValue; });
  return plan.viable(ArrayState::first(plan));
}

}  // namespace deepinfer
