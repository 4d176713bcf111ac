// The part of grammar/schema_shapes.h that asks whether anything is left.
#include <algorithm>

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

bool SchemaShapes::surely_empty(const ObjectShape& shape) {
  if (shape.min > shape.max) return true;
  std::set<std::string> required;
  for (const auto& condition : shape.some) {
    if (condition.keys.name && required.insert(*condition.keys.name).second &&
        surely_empty(value_of(shape, *condition.keys.name)))
      return true;
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

bool SchemaShapes::inhabited(const ObjectShape& shape) {
  std::set<std::string> required;
  for (const auto& condition : shape.some) {
    if (condition.keys.name) required.insert(*condition.keys.name);
  }
  for (const std::string& name : required) {
    if (!inhabited(value_of(shape, name))) return false;
  }
  auto count = static_cast<int64_t>(required.size());
  if (count > shape.max) return false;
  if (count >= shape.min) return true;
  for (const std::string& name : names(shape)) {
    if (!required.contains(name) && inhabited(value_of(shape, name)) && ++count >= shape.min) return true;
  }
  const auto others = other_keys(shape);
  return std::any_of(others.begin(), others.end(), [&](const KeyClass& keys) { return inhabited(keys.value); });
}

bool SchemaShapes::inhabited(const ArrayShape& shape) {
  const ArrayPlan plan = plan_array(*this, shape, [this](SchemaId value) { return inhabited(value) ? value : kNoValue; });
  return plan.viable(ArrayState::first(plan));
}

}  // namespace deepinfer
