// grammar/schema_compile.h - from a JSON Schema to the plan of its grammar, in an arena that others may share.
//
// Threads: one thread at a time per arena.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "grammar/schema_plan.h"
#include "grammar/schema_reader.h"

namespace deepinfer {

// As written, no string of a value holds any of `marks`.
Result<std::shared_ptr<const SchemaPlan>> compile_plan(RegexArena& arena, const Json& schema, const SchemaOptions& options = {},
                                                       const std::vector<std::string_view>& marks = {});

}  // namespace deepinfer
