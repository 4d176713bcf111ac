#include "grammar/array_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace deepinfer {
namespace {

constexpr size_t kMaxConditions = 4;
constexpr size_t kMaxSearch = 20'000;

}  // namespace

ArrayState ArrayState::first(const ArrayPlan& plan) {
  ArrayState out;
  out.counts.assign(plan.counts.size(), 0);
  return out;
}

bool ArrayState::operator<(const ArrayState& other) const {
  return std::tie(index, met, counts) < std::tie(other.index, other.met, other.counts);
}

const ArrayPlan::Segment& ArrayPlan::segment(int64_t index) const {
  size_t i = segments.size() - 1;
  while (segments[i].begin > index) --i;
  return segments[i];
}

bool ArrayPlan::closable(const ArrayState& state) const {
  if (state.index < min || state.index > max || (wanted & ~state.met) != 0) return false;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (state.counts[i] < counts[i].low || state.counts[i] > counts[i].high) return false;
  }
  return true;
}

ArrayState ArrayPlan::next(const ArrayState& state, const Choice& choice) const {
  ArrayState out = state;
  // Beyond the last border, the minimum and a finite maximum, one index is like the next.
  const int64_t last = std::max(segments.back().begin, min);
  out.index = max == kUnbounded ? std::min(state.index + 1, last) : state.index + 1;
  if (state.index < last) out.index = state.index + 1;
  out.met |= choice.meets;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (!(choice.counts >> i & 1)) continue;
    const int64_t enough = counts[i].high == kUnbounded ? counts[i].low : counts[i].high + 1;
    out.counts[i] = static_cast<int32_t>(std::min<int64_t>(out.counts[i] + 1, enough));
  }
  return out;
}

bool ArrayPlan::viable(const ArrayState& start) const {
  if (wanted == 0 && counts.empty()) return min <= max && start.index <= max;
  std::set<ArrayState> seen{start};
  std::vector<ArrayState> open{start};
  while (!open.empty() && seen.size() < kMaxSearch) {
    const ArrayState state = open.back();
    open.pop_back();
    if (closable(state)) return true;
    if (state.index >= max) continue;
    for (const Choice& choice : segment(state.index).choices) {
      const ArrayState after = next(state, choice);
      bool dead = false;
      for (size_t i = 0; i < counts.size(); ++i) dead |= after.counts[i] > counts[i].high;
      if (!dead && seen.insert(after).second) open.push_back(after);
    }
  }
  return false;
}

ArrayPlan plan_array(SchemaShapes& shapes, const ArrayShape& shape, const std::function<uint32_t(SchemaId)>& value) {
  ArrayPlan plan;
  plan.min = shape.min;
  plan.max = shape.max;
  plan.unique = shape.unique;
  // Without `contains` they come from items under a negation, which oneOf and if have, too.
  const char* keyword = shape.counts.empty() ? "items" : "contains";
  if (shape.some.size() + shape.counts.size() > kMaxConditions) {
    shapes.fail(keyword, "too many conditions on the items of one array (contains, not, oneOf)");
    return plan;
  }
  plan.wanted = (1u << shape.some.size()) - 1;
  for (const auto& count : shape.counts) plan.counts.push_back({count.low, count.high});
  if (!shape.counts.empty() || !shape.some.empty()) {
    for (const int64_t limit : {plan.min, plan.max == kUnbounded ? 0 : plan.max}) {
      if (limit > 1000)
        shapes.fail(keyword, "its conditions on single items stand together with minItems or maxItems above 1,000");
    }
  }
  std::set<int64_t> borders{0};
  for (const auto* conditions : {&shape.every, &shape.some}) {
    for (const auto& condition : *conditions) borders.insert({condition.low, condition.high});
  }
  borders.erase(kUnbounded);
  SchemaAlgebra& algebra = shapes.algebra();
  for (const int64_t border : borders) {
    if (border >= plan.max && border > 0) break;
    const SchemaId base = shapes.value_of(shape, border);
    ArrayPlan::Segment segment{.begin = border, .choices = {}};
    const size_t num_some = shape.some.size(), num_all = num_some + shape.counts.size();
    for (uint32_t bits = 0; bits < 1u << num_all; ++bits) {
      std::vector<SchemaId> parts{base};
      bool possible = true;
      for (size_t i = 0; i < num_some; ++i) {
        if (!(bits >> i & 1)) continue;
        possible &= border >= shape.some[i].low && border < shape.some[i].high;
        parts.push_back(shape.some[i].value);
      }
      for (size_t i = 0; i < shape.counts.size(); ++i) {
        const auto& count = shape.counts[i];
        // Without an upper bound an item need not be known to be outside.
        if (bits >> (num_some + i) & 1) {
          parts.push_back(count.value);
        } else if (count.high != kUnbounded) {
          parts.push_back(algebra.negate(count.value));
        }
      }
      if (!possible) continue;
      const uint32_t id = value(algebra.all_of(std::move(parts)));
      if (id != kNoValue) segment.choices.push_back({id, bits & plan.wanted, bits >> num_some});
    }
    const bool none = segment.choices.empty();
    plan.segments.push_back(std::move(segment));
    if (none) {
      plan.max = std::min(plan.max, border);
      break;
    }
  }
  return plan;
}

}  // namespace deepinfer
