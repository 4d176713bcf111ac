// The JSON part of grammar/constraint.h.
#include <fmt/format.h>

#include "grammar/constraint.h"
#include "grammar/schema_plan.h"
#include "grammar/schema_rules.h"

namespace deepinfer {

ConstraintResult compile_json_schema(std::shared_ptr<const Vocabulary> vocabulary, const Json& schema,
                                     const SchemaOptions& options, const CompileLimits& limits) {
  Lexer lexer(limits.regex);
  SchemaAlgebra algebra;
  SchemaShapes shapes(algebra, lexer.arena());
  SchemaReader reader(shapes, options);
  DI_TRY(const SchemaId root, reader.read_document(schema));
  auto plan = plan_schema(shapes, root);
  if (!plan && !shapes.problem_keyword().empty()) {
    return unsupported(fmt::format("JSON Schema keyword {} cannot be enforced: {}", reader.first_place(shapes.problem_keyword()),
                                   shapes.problem()));
  }
  if (!plan) return Error{plan.error().code, "JSON Schema: " + plan.error().message};
  auto out = std::make_shared<const Constraint>(std::move(vocabulary), lexer, std::make_unique<SchemaRules>(*plan));
  if (out->exhausted()) return too_large("JSON Schema: its patterns and bounds are too complex: simplify them");
  return std::shared_ptr<const Constraint>(std::move(out));
}

ConstraintResult compile_json_object(std::shared_ptr<const Vocabulary> vocabulary) {
  Json schema = Json::object();
  schema.set("type", "object");
  return compile_json_schema(std::move(vocabulary), schema);
}

}  // namespace deepinfer
