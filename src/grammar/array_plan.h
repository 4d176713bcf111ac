// grammar/array_plan.h - how an array of one shape is written item by item.
//
// The indices fall into segments in which all items are treated alike. What an item may be there is a list of choices, each
// with what it does for the conditions that count items. A state is what has been counted so far.
// Threads: const after planning.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "grammar/schema_shapes.h"

namespace deepinfer {

struct ArrayPlan;

struct ArrayState {
  int64_t index = 0;
  uint32_t met = 0;             // bits: which `some` conditions are met
  std::vector<int32_t> counts;  // of each count condition, no further than it matters
  static ArrayState first(const ArrayPlan& plan);
  bool operator<(const ArrayState& other) const;
};

struct ArrayPlan {
  struct Choice {
    uint32_t value;
    uint32_t meets = 0, counts = 0;  // bits
  };
  struct Segment {
    int64_t begin;
    std::vector<Choice> choices;
    uint32_t open = 0;  // `some` conditions that can still be met here or later
  };
  struct Count {
    int64_t low, high;
  };
  std::vector<Segment> segments;
  std::vector<Count> counts;
  uint32_t wanted = 0;  // all `some` conditions
  int64_t min = 0, max = kUnbounded;
  bool unique = false;
  bool too_large = false;

  const Segment& segment(int64_t index) const;
  bool closable(const ArrayState& state) const;
  // The state behind an item; nothing of use where viable() is false.
  ArrayState next(const ArrayState& state, const Choice& choice) const;
  // The array can be ended from here.
  bool viable(const ArrayState& state) const;
};

// `value` gives what stands for an item's schema in Choice::value; kNoValue for what no value satisfies.
ArrayPlan plan_array(SchemaShapes& shapes, const ArrayShape& shape, const std::function<uint32_t(SchemaId)>& value);

}  // namespace deepinfer
