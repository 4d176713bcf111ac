// policy/replay.h - where a prompt starts to be computed, and where snapshots must lie (kv_cache.md sections 4 and 5).
//
// Sizes in tokens: W the window, R the kept suffix, N the length of the original prompt (before anything was generated, so
// a resumed request repeats exactly what the uninterrupted one did), H the length of a cached prefix, P a snapshot's place.
//   off      all layers run on all tokens; a snapshot holds the rings of all layers.
//   decoder  the layers behind the candidate layer run from s = N - R on. They need exact outputs of the layers before
//            from s - (W - 1) on, so a snapshot (of those layers) serves when P <= N - R - (W - 1).
//   full     as decoder, and a hit without snapshot restarts the windows W tokens before its end: fast, approximate.
// Without a snapshot, `off` and `decoder` restart as many windows earlier as there are layers: what is read from there on
// is exact again.
// Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/function_ref.h"
#include "core/model_shape.h"
#include "core/types.h"

namespace deepinfer {

struct ReplayRules {
  ReplayMode mode = ReplayMode::kDecoder;
  int32_t keep_tokens = 0;     // R
  int32_t window = 0;          // W
  int32_t encoder_layers = 0;  // up to the candidate layer, without it
  int32_t layers = 0;
  int32_t page_tokens = 0;
};

ReplayRules replay_rules(const ModelShape& shape, ReplayMode mode, int32_t keep_tokens, int32_t page_tokens);

// Layers whose rings a snapshot holds.
inline int32_t snapshot_layers(const ReplayRules& rules) {
  return rules.mode == ReplayMode::kOff ? rules.layers : rules.encoder_layers;
}

// s: the layers behind the candidate layer run on rows from here on.
inline Position decoder_start(const ReplayRules& rules, Position prompt_tokens) {
  return rules.mode == ReplayMode::kOff ? 0 : std::max<Position>(0, prompt_tokens - rules.keep_tokens);
}

// The last position from which a prompt of that length can be resumed exactly; may be negative.
inline Position latest_resume(const ReplayRules& rules, Position prompt_tokens) {
  if (rules.mode == ReplayMode::kOff) return prompt_tokens - 1;
  return prompt_tokens - rules.keep_tokens - (rules.window - 1);
}

// The page border at which a snapshot serves every prompt that begins with these tokens and is at least as long; 0 = none.
inline Position snapshot_border(const ReplayRules& rules, Position tokens) {
  return std::max<Position>(0, latest_resume(rules, tokens)) / rules.page_tokens * rules.page_tokens;
}

// How the rows of a prompt with a cached prefix of `hit` tokens start.
struct ReplayStart {
  Position begin = 0;         // first row
  Position window_floor = 0;  // the layers up to the candidate layer see window keys from here on
  Position exact_from = 0;    // the rings at a border from here on are worth a snapshot
};

// Without a snapshot. REQUIRES: hit < the tokens to compute.
ReplayStart replay_start(const ReplayRules& rules, Position prompt_tokens, Position hit);

// The same where `has_snapshot` says at which borders one is: the newest that serves, else a replay.
ReplayStart resume_start(const ReplayRules& rules, Position prompt_tokens, Position hit,
                         FunctionRef<bool(Position border)> has_snapshot);

}  // namespace deepinfer
