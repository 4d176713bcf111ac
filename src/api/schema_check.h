// api/schema_check.h - is this a valid JSON Schema?
//
// Checks a schema against the meta-schema (draft 2020-12 words, older drafts included), and that local $refs lead
// somewhere. Nothing is ever fetched. Messages follow common validators: `"x" is not of type "array"`.
// Promise: bounded by the size and depth of the schema; any Json is fine.
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

Status check_schema(const Json& schema);

// A tool's parameters as the recipe wants them: valid, and an object at the top. `function` goes into the text.
Status check_tool_schema(std::string_view function, const Json& schema);

}  // namespace deepinfer
