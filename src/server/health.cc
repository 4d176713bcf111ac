#include "server/health.h"

#include <fmt/format.h>

namespace deepinfer {

Readiness engine_readiness(const Engine& engine, int64_t stall_limit_us) {
  const EngineProgress progress = engine.progress();
  if (progress.inside > 0 && progress.since_us > stall_limit_us) {
    return {false, "stalled",
            fmt::format("the engine has {} request(s) and has not finished a step for {:.1f} s (limit {:.1f} s)", progress.inside,
                        static_cast<double>(progress.since_us) / 1e6, static_cast<double>(stall_limit_us) / 1e6)};
  }
  if (const Status status = engine.health(); !status)
    return {false, "failing", "the last step failed: " + status.error().message};
  return {true, "ready", ""};
}

Readiness readiness_of(Host* host, bool draining, int64_t stall_limit_us) {
  if (draining) return {false, "draining", "the server is finishing what runs and takes nothing new"};
  if (!host) return {false, "loading", "the model is loading"};
  if (!host->is_local()) {
    const Status status = host->remote().health();
    return status ? Readiness{true, "ready", ""} : Readiness{false, "alone", status.error().message};
  }
  return engine_readiness(host->engine(), stall_limit_us);
}

}  // namespace deepinfer
