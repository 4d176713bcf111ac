// core/service_facts.h - what one must know of a TokenService to write requests for it: the model's sizes and its own limits.
//
// Of an engine in this process, or told by workers to a router; workers with other facts serve another model and are no choice.
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

#include "core/model_shape.h"

namespace deepinfer {

struct ServiceFacts {
  std::string model;        // its name
  std::string fingerprint;  // fp_ and a hash of all an answer's bytes depend on besides its request
  ModelShape shape;         // told by a worker: what requests need of it (vocab, hidden, ids, context, vision)
  int64_t context = 0;      // tokens of one sequence
  int32_t max_batch = 0, queue_limit = 0;
  // Of prefixes in its memory: what their keys are made from.
  int64_t pages = 0;
  int32_t page_tokens = 0;
  std::string pages_fingerprint;
  bool bounded_pages = false;  // replay mode full
};

}  // namespace deepinfer
