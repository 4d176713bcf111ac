// api/strict_schema.h - the normal form of a strict schema.
//
// A strict tool or answer format may use a small part of JSON Schema. normalise_strict() checks that it does and writes
// the part that counts in a fixed order of keys; everything else is dropped, for the prompt shows the normal form. What an answer
// is held to is strict_constraint(): the whole schema, with what the normal form takes for granted written out.
// Promise: deterministic; the input is only read.
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

enum class StrictUse { kToolParameters, kAnswerFormat };

// `lenient`: members of anyOf may be a $ref, as the schemas of SDKs have for optional nested models.
Result<Json> normalise_strict(const Json& schema, StrictUse use, bool lenient = false);
// Objects are closed and all their properties required where the schema says nothing else.
Json strict_constraint(const Json& schema);

}  // namespace deepinfer
