#include "grammar/object_plan.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Choices of one object, and ways to meet some of them with one key. Real schemas have two and four.
constexpr size_t kMaxChoices = 10, kMaxWays = 32;

// Steps to ask of each value whether the rest can be met behind it, some milliseconds.
constexpr size_t kMaxSteps = 4'000'000;

}  // namespace

// With choices open: the fewest keys for each set of them, entry by entry.
int64_t ObjectPlan::needed(const ObjectState& at) const {
  int64_t out = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].required || at.seen(i)) continue;
    if (entries[i].values.empty()) return kUnbounded;
    ++out;
  }
  if ((wanted & ~at.met) == 0) return out;
  std::vector<int64_t> least(wanted + size_t{1}, kUnbounded);
  least[at.met] = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (at.seen(i) || !entries[i].meets_some()) continue;
    for (uint32_t met = wanted + 1; met-- > 0;) {
      if (least[met] == kUnbounded) continue;
      for (const Value& value : entries[i].values) {
        least[met | value.meets] = std::min(least[met | value.meets], least[met] + (entries[i].required ? 0 : 1));
      }
    }
  }
  return least[wanted] == kUnbounded ? kUnbounded : out + least[wanted];
}

bool ObjectPlan::viable(const ObjectState& at) const {
  const int64_t least = needed(at);
  return least != kUnbounded && least <= max - at.count;
}

ObjectState ObjectPlan::next(const ObjectState& at) const {
  ObjectState out = at;
  out.count = max == kUnbounded ? std::min(at.count + 1, min) : at.count + 1;  // how many matters only up to a bound
  return out;
}

ObjectState ObjectPlan::next(const ObjectState& at, size_t entry, const Value& value) const {
  ObjectState out = next(at);
  out.words[entry / 32] |= 1u << (entry % 32);
  out.met |= value.meets;
  return out;
}

bool ObjectPlan::is_idle(const ObjectState& at, size_t entry, const Value& value) const {
  const std::vector<Value>& values = entries[entry].values;
  return std::any_of(values.begin(), values.end(), [&](const Value& other) {
    const bool wider = other.meets != value.meets && (other.meets & ~value.meets) == 0;
    return wider && ((other.meets ^ value.meets) & ~at.met) == 0;
  });
}

namespace {

class Planner {
 public:
  Planner(SchemaShapes& shapes, const ObjectShape& shape, const std::function<uint32_t(SchemaId)>& value)
      : shapes_(shapes), shape_(shape), value_(value) {
    plan_.min = shape.min;
    plan_.max = shape.max;
  }

  ObjectPlan plan() {
    for (const ObjectShape::Choice& choice : shape_.some) {
      if (choice.size() > 1) choices_.push_back(&choice);
      for (const auto& condition : choice) {
        if (!condition.keys.name) shapes_.fail("not", "it asks for some key of a pattern");
      }
    }
    if (choices_.size() > kMaxChoices) shapes_.fail_too_large();
    if (!shapes_.problem().empty()) return std::move(plan_);
    plan_.wanted = (1u << choices_.size()) - 1;
    for (const std::string& name : shapes_.names(shape_)) add_entry(name);
    size_t num_values = 0;
    for (const ObjectPlan::Entry& entry : plan_.entries) num_values += entry.values.size();
    if (!choices_.empty() && num_values * num_values << choices_.size() > kMaxSteps) shapes_.fail_too_large();
    for (const SchemaShapes::KeyClass& keys : shapes_.other_keys(shape_)) {
      const uint32_t value = value_(keys.value);
      if (value == kNoValue) continue;
      const Rx text = shapes_.within_strings(keys.text);
      if (shapes_.arena().alive(text)) plan_.classes.push_back({text, value});
    }
    return std::move(plan_);
  }

 private:
  void add_entry(const std::string& name) {
    ObjectPlan::Entry entry{.name = name, .values = {}, .required = false};
    for (const ObjectShape::Choice& choice : shape_.some) entry.required |= choice.size() == 1 && choice[0].keys.name == name;
    std::vector<std::pair<SchemaId, uint32_t>> ways{{shapes_.value_of(shape_, name), 0}};
    for (size_t i = 0; i < choices_.size(); ++i) {
      std::vector<SchemaId> parts;
      for (const auto& condition : *choices_[i]) {
        if (condition.keys.name == name) parts.push_back(condition.value);
      }
      if (parts.empty()) continue;
      const SchemaId meeting = shapes_.algebra().any_of(std::move(parts));
      for (size_t k = 0, end = ways.size(); k < end; ++k) {
        const SchemaId both = shapes_.algebra().all_of({ways[k].first, meeting});
        if (value_(both) != kNoValue) ways.emplace_back(both, ways[k].second | 1u << i);
      }
      if (ways.size() > kMaxWays) shapes_.fail_too_large();
      if (!shapes_.problem().empty()) return;
    }
    // Those that meet more come last.
    for (size_t k = ways.size(); k-- > 0;) {
      const auto& [schema, meets] = ways[k];
      const bool more = std::any_of(ways.begin() + static_cast<std::ptrdiff_t>(k) + 1, ways.end(),
                                    [&](const auto& other) { return other.first == schema && (meets & ~other.second) == 0; });
      if (const uint32_t value = value_(schema); value != kNoValue && !more) entry.values.push_back({value, meets});
    }
    // A required key that nothing fits stays, and with it that the object has no end.
    if (!entry.values.empty() || entry.required) plan_.entries.push_back(std::move(entry));
  }

  SchemaShapes& shapes_;
  const ObjectShape& shape_;
  const std::function<uint32_t(SchemaId)>& value_;
  std::vector<const ObjectShape::Choice*> choices_;
  ObjectPlan plan_;
};

}  // namespace

ObjectPlan plan_object(SchemaShapes& shapes, const ObjectShape& shape, const std::function<uint32_t(SchemaId)>& value) {
  return Planner(shapes, shape, value).plan();
}

}  // namespace deepinfer
