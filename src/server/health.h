// server/health.h - whether answers can be expected, and if not, why.
//
// Threads: pure.
#pragma once

#include <string>

#include "host/host.h"

namespace deepinfer {

struct Readiness {
  bool ready = false;
  const char* state = "loading";  // ready, loading, stalled, failing, alone, draining
  std::string reason;             // for people
};

// Of an engine in this process.
Readiness engine_readiness(const Engine& engine, int64_t stall_limit_us);
// `host` may be null while the model loads.
Readiness readiness_of(Host* host, bool draining, int64_t stall_limit_us);

}  // namespace deepinfer
