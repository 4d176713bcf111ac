// grammar/object_plan.h - how an object of one shape is written key by key.
//
// Each name that the shape speaks of is an entry with what its value may be. Where one of several keys must have some value (a
// choice of the shape), the value of each is planned twice: as anything that is allowed, and as what meets the choice. A state is
// which keys have come and which choices are met.
// Threads: const after planning.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "grammar/schema_shapes.h"

namespace deepinfer {

struct ObjectState {
  std::vector<uint32_t> words;  // bits: which entries have come
  uint32_t met = 0;             // bits: which choices are met
  int64_t count = 0;            // keys, no further than it matters
  bool seen(size_t entry) const { return (words[entry / 32] >> (entry % 32) & 1) != 0; }
};

struct ObjectPlan {
  struct Value {
    uint32_t value;
    uint32_t meets = 0;  // bits
  };
  struct Entry {
    std::string name;
    std::vector<Value> values;
    bool required;
    bool meets_some() const { return values.size() > 1 || (values.size() == 1 && values[0].meets != 0); }
  };
  struct Class {
    Rx text;
    uint32_t value;
  };
  std::vector<Entry> entries;
  std::vector<Class> classes;  // of other names
  uint32_t wanted = 0;         // all choices
  int64_t min = 0, max = kUnbounded;

  ObjectState first() const { return {.words = std::vector<uint32_t>((entries.size() + 31) / 32, 0)}; }
  // How many keys must still come at least; kUnbounded where the object cannot be ended.
  int64_t needed(const ObjectState& at) const;
  bool closable(const ObjectState& at) const { return needed(at) == 0 && at.count >= min; }
  bool viable(const ObjectState& at) const;
  // The state behind an entry, or behind another key.
  ObjectState next(const ObjectState& at, size_t entry, const Value& value) const;
  ObjectState next(const ObjectState& at) const;
  // Another value of the entry is wider and leads to the same.
  bool is_idle(const ObjectState& at, size_t entry, const Value& value) const;
};

// `value` gives what stands for a schema in Value::value and Class::value; kNoValue for what no value satisfies. What it gives is
// viable(), or has no way to an end; what cannot be planned is told by shapes.problem().
ObjectPlan plan_object(SchemaShapes& shapes, const ObjectShape& shape, const std::function<uint32_t(SchemaId)>& value);

}  // namespace deepinfer
