#include "grammar/schema_algebra.h"

#include <algorithm>
#include <tuple>

namespace deepinfer {

uint32_t SchemaAtom::subject() const {
  switch (kind) {
    case Kind::kTypes: return kAllTypes;
    case Kind::kText: return kStringType;
    case Kind::kNumber: return kNumberType;
    case Kind::kEveryKey:
    case Kind::kSomeKey:
    case Kind::kNumKeys: return kObjectType;
    case Kind::kEveryItem:
    case Kind::kSomeItem:
    case Kind::kCount:
    case Kind::kNumItems:
    case Kind::kUnique: return kArrayType;
  }
  return kAllTypes;
}

bool SchemaAtom::operator<(const SchemaAtom& other) const {
  return std::tie(kind, types, text, keys, value, low, high) <
         std::tie(other.kind, other.types, other.text, other.keys, other.value, other.low, other.high);
}

SchemaAlgebra::SchemaAlgebra() {
  nodes_.push_back({Kind::kNone, {}});
  nodes_.push_back({Kind::kAny, {}});
}

SchemaId SchemaAlgebra::atom(SchemaAtom atom) {
  if (atom.kind == SchemaAtom::Kind::kTypes && atom.types == kAllTypes) return kAnyValue;
  if (atom.kind == SchemaAtom::Kind::kTypes && atom.types == 0) return kNoValue;
  if ((atom.kind == SchemaAtom::Kind::kEveryKey || atom.kind == SchemaAtom::Kind::kEveryItem) && atom.value == kAnyValue)
    return kAnyValue;
  const auto [entry, added] = atom_index_.try_emplace(atom, static_cast<SchemaId>(nodes_.size()));
  if (added) {
    nodes_.push_back({Kind::kAtom, {}, static_cast<uint32_t>(atoms_.size())});
    atoms_.push_back(std::move(atom));
  }
  return entry->second;
}

SchemaId SchemaAlgebra::intern(Kind kind, std::vector<SchemaId> parts) {
  const auto [entry, added] = index_.try_emplace({kind, parts}, static_cast<SchemaId>(nodes_.size()));
  if (added) nodes_.push_back({kind, std::move(parts)});
  return entry->second;
}

SchemaId SchemaAlgebra::join(Kind kind, std::vector<SchemaId> parts) {
  const SchemaId neutral = kind == Kind::kAnd ? kAnyValue : kNoValue;
  const SchemaId absorbing = kind == Kind::kAnd ? kNoValue : kAnyValue;
  std::vector<SchemaId> flat;
  for (const SchemaId part : parts) {
    if (nodes_[part].kind == kind) {
      flat.insert(flat.end(), nodes_[part].parts.begin(), nodes_[part].parts.end());
    } else if (part != neutral) {
      flat.push_back(part);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return neutral;
  for (const SchemaId part : flat) {
    if (part == absorbing) return absorbing;
    if (nodes_[part].kind == Kind::kNot && std::binary_search(flat.begin(), flat.end(), nodes_[part].parts[0])) return absorbing;
  }
  return flat.size() == 1 ? flat[0] : intern(kind, std::move(flat));
}

SchemaId SchemaAlgebra::all_of(std::vector<SchemaId> parts) { return join(Kind::kAnd, std::move(parts)); }
SchemaId SchemaAlgebra::any_of(std::vector<SchemaId> parts) { return join(Kind::kOr, std::move(parts)); }

SchemaId SchemaAlgebra::one_of(std::vector<SchemaId> parts) {
  std::erase(parts, kNoValue);
  if (parts.empty()) return kNoValue;
  return parts.size() == 1 ? parts[0] : intern(Kind::kOneOf, std::move(parts));
}

SchemaId SchemaAlgebra::negate(SchemaId id) {
  if (id == kAnyValue) return kNoValue;
  if (id == kNoValue) return kAnyValue;
  if (nodes_[id].kind == Kind::kNot) return nodes_[id].parts[0];
  return intern(Kind::kNot, {id});
}

SchemaId SchemaAlgebra::name() {
  nodes_.push_back({Kind::kName, {}});
  return static_cast<SchemaId>(nodes_.size() - 1);
}

}  // namespace deepinfer
