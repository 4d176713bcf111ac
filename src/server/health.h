// server/health.h - whether answers can be expected, and if not, why.
//
// Threads: pure.
#pragma once

#include <string>

#include "engine/engine.h"

namespace deepinfer {

struct Readiness {
  bool ready = false;
  const char* state = "loading";  // ready, loading, stalled, failing, draining
  std::string reason;             // for people
};

// `engine` may be null while the model loads.
Readiness readiness_of(const Engine* engine, bool draining, int64_t stall_limit_us);

}  // namespace deepinfer
