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

}  // namespace deepinfer
