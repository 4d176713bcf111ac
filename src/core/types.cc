#include "core/types.h"

namespace deepinfer {

const char* replay_mode_name(ReplayMode mode) {
  switch (mode) {
    case ReplayMode::kOff: return "off";
    case ReplayMode::kDecoder: return "decoder";
    case ReplayMode::kFull: return "full";
  }
  return "unknown";
}

const char* miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::kNone: return "none";
    case MissReason::kOff: return "off";
    case MissReason::kShort: return "too short";
    case MissReason::kNew: return "new";
    case MissReason::kChanged: return "changed";
    case MissReason::kOtherImage: return "another picture";
    case MissReason::kEvicted: return "evicted";
    case MissReason::kExpired: return "expired";
    case MissReason::kLate: return "late";
    case MissReason::kTierDown: return "tier down";
    case MissReason::kOtherModel: return "other model or layout";
    case MissReason::kOtherTenant: return "other tenant";
  }
  return "unknown";
}

}  // namespace deepinfer
