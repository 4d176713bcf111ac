#include "policy/replay.h"

namespace deepinfer {

ReplayRules replay_rules(const ModelShape& shape, ReplayMode mode, int32_t keep_tokens, int32_t page_tokens) {
  // Without a candidate layer nothing stops early.
  if (shape.candidate_source < 0) mode = ReplayMode::kOff;
  return {.mode = mode,
          .keep_tokens = keep_tokens,
          .window = shape.window,
          .encoder_layers = shape.candidate_source < 0 ? shape.layers : shape.candidate_source,
          .layers = shape.layers,
          .page_tokens = page_tokens};
}

ReplayStart replay_start(const ReplayRules& rules, Position prompt_tokens, Position hit) {
  if (rules.mode == ReplayMode::kFull) {
    const Position begin = std::max<Position>(0, std::min(hit - rules.window, prompt_tokens - rules.keep_tokens));
    return {begin, begin, 0};
  }
  const int64_t reach = int64_t{snapshot_layers(rules)} * (rules.window - 1);
  const Position begin = std::min(hit, latest_resume(rules, prompt_tokens)) - reach;
  const Position border = std::max<Position>(0, begin) / rules.page_tokens * rules.page_tokens;
  return {border, border, border == 0 ? 0 : border + reach};
}

ReplayStart resume_start(const ReplayRules& rules, Position prompt_tokens, Position hit,
                         FunctionRef<bool(Position border)> has_snapshot) {
  if (hit == 0) return {};
  const ReplayStart replay = replay_start(rules, prompt_tokens, hit);
  const Position latest = std::min(hit, latest_resume(rules, prompt_tokens));
  for (Position border = latest / rules.page_tokens * rules.page_tokens; border > replay.begin; border -= rules.page_tokens) {
    if (has_snapshot(border)) return {border, 0, 0};
  }
  return replay;
}

}  // namespace deepinfer
