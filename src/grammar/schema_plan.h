// grammar/schema_plan.h - every value a schema can lead to, with schemas worked out and emptiness decided.
//
// Planning visits all that an answer may reach, so whatever cannot be enforced is found before generation.
// Threads: const after planning; shared by all masks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/array_plan.h"
#include "grammar/object_plan.h"
#include "grammar/schema_shapes.h"

namespace deepinfer {

struct ValuePlan {
  Scalars scalars;
  std::vector<ObjectPlan> objects;
  std::vector<ArrayPlan> arrays;
};

struct SchemaPlan {
  std::vector<ValuePlan> values;  // 0 stands for kNoValue and is empty
  uint32_t root = 0;
  Rx any_text = kNothing;   // what a string without conditions decodes to
  Rx free_body = kNothing;  // how it is written between its quotes
};

// An Error when the schema admits nothing or cannot be worked out.
Result<std::shared_ptr<const SchemaPlan>> plan_schema(SchemaShapes& shapes, SchemaId root);

}  // namespace deepinfer
