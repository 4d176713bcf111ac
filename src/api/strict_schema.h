// api/strict_schema.h - the normal form of a strict schema.
//
// A strict tool or answer format may use a small part of JSON Schema. normalise_strict() checks that it does and writes
// the part that counts in a fixed order of keys; everything else is dropped.
// Promise: deterministic; the input is only read.
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

enum class StrictUse { kToolParameters, kAnswerFormat };

Result<Json> normalise_strict(const Json& schema, StrictUse use);

}  // namespace deepinfer
