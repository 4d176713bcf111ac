#include "grammar/schema_plan.h"

#include <algorithm>

#include "grammar/number_text.h"

namespace deepinfer {
namespace {

// Distinct values of one schema; the largest of 300 real ones has under 3,000.
constexpr size_t kMaxValues = 30'000;

class Planner {
 public:
  explicit Planner(SchemaShapes& shapes) : shapes_(shapes) { plan_.values.emplace_back(); }

  Result<std::shared_ptr<const SchemaPlan>> plan(SchemaId root) {
    plan_.any_text = shapes_.any_text();
    plan_.free_body = shapes_.free_body();
    plan_.root = number(root);
    for (size_t i = 0; i < pending_.size() && shapes_.problem().empty(); ++i) {
      if (plan_.values.size() > kMaxValues) shapes_.fail("", "the schema leads to too many different values");
      plan_value(pending_[i], static_cast<uint32_t>(i + 1));
    }
    if (!shapes_.problem().empty()) return unsupported(shapes_.problem());
    if (shapes_.arena().exhausted()) return too_large("the schema's patterns and bounds are too complex: simplify it");
    if (plan_.root == 0) return invalid_argument("no value satisfies the schema");
    return std::make_shared<const SchemaPlan>(std::move(plan_));
  }

 private:
  uint32_t number(SchemaId id) {
    if (const auto found = numbers_.find(id); found != numbers_.end()) return found->second;
    if (!shapes_.inhabited(id)) return numbers_[id] = 0;
    // By what a name stands for: equal parts of a schema, as in a choice of all definitions in each of them, are one value.
    const SchemaAlgebra::Node& node = shapes_.algebra().node(id);
    if (node.kind == SchemaAlgebra::Kind::kName && shapes_.problem().empty()) {
      const uint32_t value = number(node.parts[0]);
      return numbers_[id] = value;
    }
    const auto value = static_cast<uint32_t>(plan_.values.size());
    plan_.values.emplace_back();
    pending_.push_back(id);
    return numbers_[id] = value;
  }

  void plan_value(SchemaId id, uint32_t value) {
    ValuePlan out{.scalars = shapes_.scalars(id), .objects = {}, .arrays = {}};
    RegexArena& arena = shapes_.arena();
    if (!arena.alive(out.scalars.text)) out.scalars.text = kNothing;
    if (!arena.alive(out.scalars.number)) out.scalars.number = kNothing;
    if (out.scalars.integral) out.scalars.number = plain_integers(out.scalars.number);
    for (const ObjectShape& shape : std::vector<ObjectShape>(shapes_.objects(id))) add_object(shape, out);
    for (const ArrayShape& shape : std::vector<ArrayShape>(shapes_.arrays(id))) {
      ArrayPlan plan = plan_array(shapes_, shape, [this](SchemaId item) { return number(item); });
      if (!shapes_.problem().empty()) return;
      if (plan.unique && plan.max > 1) {
        shapes_.fail("uniqueItems", "more than one item may come, and what was written is not remembered");
        return;
      }
      if (plan.viable(ArrayState::first(plan))) out.arrays.push_back(std::move(plan));
    }
    plan_.values[value] = std::move(out);
  }

  // 14.0 is an integer, too, but many readers of typed data refuse it. Every integer of the language has a text without a
  // fraction there, so nothing gets lost.
  Rx plain_integers(Rx number) {
    RegexArena& arena = shapes_.arena();
    const Rx plain = integer_number(arena, false);
    if (number == kNothing) return kNothing;
    return number == integer_number(arena, true) ? plain : arena.intersect({number, plain});
  }

  void add_object(const ObjectShape& shape, ValuePlan& out) {
    ObjectPlan plan = plan_object(shapes_, shape, [this](SchemaId value) { return number(value); });
    if (!shapes_.problem().empty() || !plan.viable(plan.first())) return;
    if (plan.classes.empty() && static_cast<int64_t>(plan.entries.size()) < plan.min) return;
    if (!plan.classes.empty() && plan.min > 1 && plan.min > plan.needed(plan.first())) {
      shapes_.fail("minProperties", "it is above 1 together with free names");
      return;
    }
    out.objects.push_back(std::move(plan));
  }

  SchemaShapes& shapes_;
  SchemaPlan plan_;
  std::unordered_map<SchemaId, uint32_t> numbers_;
  std::vector<SchemaId> pending_;
};

}  // namespace

Result<std::shared_ptr<const SchemaPlan>> plan_schema(SchemaShapes& shapes, SchemaId root) { return Planner(shapes).plan(root); }

}  // namespace deepinfer
