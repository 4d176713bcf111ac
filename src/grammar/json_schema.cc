// The JSON part of grammar/constraint.h.
#include <fmt/format.h>

#include "grammar/char_class.h"
#include "grammar/constraint.h"
#include "grammar/json_text.h"
#include "grammar/schema_compile.h"
#include "grammar/schema_rules.h"

namespace deepinfer {

Result<std::shared_ptr<const SchemaPlan>> compile_plan(RegexArena& arena, const Json& schema, const SchemaOptions& options,
                                                       const std::vector<std::string_view>& marks) {
  Rx strings = any_text(arena), free_body = json_body_of_any(arena);
  if (!marks.empty()) {
    const Rx unmarked = texts_without(arena, marks);
    strings = arena.intersect({strings, unmarked});
    free_body = arena.intersect({free_body, unmarked});
  }
  SchemaAlgebra algebra;
  SchemaShapes shapes(algebra, arena, strings, free_body);
  SchemaReader reader(shapes, options);
  DI_TRY(const SchemaId root, reader.read_document(schema));
  auto plan = plan_schema(shapes, root);
  if (!plan && !shapes.problem_keyword().empty()) {
    return unsupported(fmt::format("JSON Schema keyword {} cannot be enforced: {}", reader.first_place(shapes.problem_keyword()),
                                   shapes.problem()));
  }
  if (!plan) return Error{plan.error().code, "JSON Schema at #: " + plan.error().message};
  return plan;
}

ConstraintResult compile_json_schema(std::shared_ptr<const Vocabulary> vocabulary, const Json& schema,
                                     const SchemaOptions& options, const CompileLimits& limits) {
  Lexer lexer(limits.regex);
  lexer.arena().start_clock();
  DI_TRY(auto plan, compile_plan(lexer.arena(), schema, options));
  auto out = std::make_shared<const Constraint>(std::move(vocabulary), lexer, std::make_unique<SchemaRules>(std::move(plan)));
  if (out->exhausted()) return too_large("JSON Schema at #: its patterns and bounds are too complex: simplify them");
  return std::shared_ptr<const Constraint>(std::move(out));
}

ConstraintResult compile_json_object(std::shared_ptr<const Vocabulary> vocabulary) {
  Json schema = Json::object();
  schema.set("type", "object");
  return compile_json_schema(std::move(vocabulary), schema);
}

}  // namespace deepinfer
