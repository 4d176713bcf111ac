// grammar/schema_algebra.h - sets of JSON values under and, or, not.
//
// A schema is a set of values. Every keyword is an atom that speaks about one type and lets all others pass; schemas are
// atoms joined by and, or, not. oneOf, if/then/else, dependentSchemas and the rest are words for these, so each is
// enforced exactly or its expansion is found too large.
// A name may be given first and its meaning later (name(), define()), which is how $ref may be recursive.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/regex.h"

namespace deepinfer {

using SchemaId = uint32_t;
inline constexpr SchemaId kNoValue = 0;
inline constexpr SchemaId kAnyValue = 1;
inline constexpr int64_t kUnbounded = INT64_MAX;

// Bits of ValueTypes; booleans are two values.
enum ValueType : uint32_t {
  kNullType = 1,
  kFalseType = 2,
  kTrueType = 4,
  kStringType = 8,
  kNumberType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127,
};

// Which keys an object atom is about: one name, or those whose text is in `text`.
struct KeySet {
  std::optional<std::string> name;
  Rx text = kNothing;
  bool operator<(const KeySet& other) const { return name != other.name ? name < other.name : text < other.text; }
  bool operator==(const KeySet&) const = default;
};

struct SchemaAtom {
  enum class Kind : uint8_t {
    kTypes,      // the value is of one of `types`
    kText,       // a string's decoded text is in `text`
    kNumber,     // a number's text is in `text`, a subset of plain_number()
    kEveryKey,   // the value of each key of `keys` is in `value`
    kSomeKey,    // some key of `keys` has its value in `value`
    kNumKeys,    // the number of keys is low..high
    kEveryItem,  // each item with an index in [low, high) is in `value`
    kSomeItem,   // some item with an index in [low, high) is in `value`
    kCount,      // the number of items in `value` is low..high
    kNumItems,   // the number of items is low..high
    kUnique,     // no two items are equal
  };
  Kind kind;
  uint32_t types = 0;
  Rx text = kNothing;
  KeySet keys;
  SchemaId value = kAnyValue;
  int64_t low = 0, high = kUnbounded;
  bool integral = false;  // of kNumber: all of them are integers

  // Of which type it speaks.
  uint32_t subject() const;
  bool operator<(const SchemaAtom& other) const;
};

class SchemaAlgebra {
 public:
  enum class Kind : uint8_t { kNone, kAny, kAtom, kAnd, kOr, kOneOf, kNot, kName };
  struct Node {
    Kind kind;
    std::vector<SchemaId> parts;  // of kAnd, kOr, kOneOf; one of kNot and (when defined) of kName
    uint32_t atom = 0;
  };

  SchemaAlgebra();
  SchemaId atom(SchemaAtom atom);
  SchemaId types(uint32_t types) { return atom({.kind = SchemaAtom::Kind::kTypes, .types = types, .keys = {}}); }
  SchemaId all_of(std::vector<SchemaId> parts);
  SchemaId any_of(std::vector<SchemaId> parts);
  SchemaId one_of(std::vector<SchemaId> parts);  // exactly one of them
  SchemaId negate(SchemaId id);
  SchemaId name();
  void define(SchemaId name, SchemaId meaning) { nodes_[name].parts = {meaning}; }

  const Node& node(SchemaId id) const { return nodes_[id]; }
  const SchemaAtom& atom_of(SchemaId id) const { return atoms_[nodes_[id].atom]; }
  size_t size() const { return nodes_.size(); }

 private:
  SchemaId intern(Kind kind, std::vector<SchemaId> parts);
  SchemaId join(Kind kind, std::vector<SchemaId> parts);

  std::vector<Node> nodes_;
  std::vector<SchemaAtom> atoms_;
  std::map<SchemaAtom, SchemaId> atom_index_;
  std::map<std::pair<Kind, std::vector<SchemaId>>, SchemaId> index_;
};

}  // namespace deepinfer
