#include "server/health.h"

#include <fmt/format.h>

namespace deepinfer {

Readiness readiness_of(const Engine* engine, bool draining, int64_t stall_limit_us) {
  if (draining) return {false, "draining", "the server is finishing what runs and takes nothing new"};
  if (!engine) return {false, "loading", "the model is loading"};
  const EngineProgress progress = engine->progress();
  if (progress.inside > 0 && progress.since_us > stall_limit_us) {
    return {false, "stalled",
            fmt::format("the engine has {} request(s) and has not finished a step for {:.1f} s (limit {:.1f} s)", progress.inside,
                        static_cast<double>(progress.since_us) / 1e6, static_cast<double>(stall_limit_us) / 1e6)};
  }
  if (const Status status = engine->health(); !status)
    return {false, "failing", "the last step failed: " + status.error().message};
  return {true, "ready", ""};
}

}  // namespace deepinfer
