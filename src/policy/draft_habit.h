// policy/draft_habit.h - whether drafts pay for one sequence: texts differ more than machines do.
//
// gain = tokens a step gave this sequence / what the step cost in steps without drafts. A sequence whose last steps lost rests
// for 8 steps, doubled up to 256 each time it loses again; one whose block the schedule did not verify at all rests at once,
// since already the draft pass was too much. A mean over 8 steps is coarse, but a rest taken in error is short.
// The governor (draft_governor.h) watches the engine as a whole.
// Promise: plain data.
// Threads: one.
//
//   if (habit.drafts()) ... draft, verify ...; habit.note(tokens / price);
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer {

class DraftHabit {
 public:
  // Asked once a step.
  bool drafts() {
    if (rest_left_ == 0) return true;
    --rest_left_;
    return false;
  }
  void note(double gain) {
    ++steps_;
    mean_ += (gain - mean_) / static_cast<double>(std::min<int32_t>(steps_, kWindow));
    if ((steps_ >= kShortest && mean_ < kClearLoss) || (steps_ >= kWindow && mean_ < kLeastGain)) return rest();
    if (steps_ >= kProved) pause_ = kPause;
  }
  void note_hopeless() { rest(); }
  // Resting so long that the drafter need not follow meanwhile.
  bool away() const { return rest_left_ > 0 && pause_ > kLongRest; }

 private:
  static constexpr int32_t kWindow = 8, kShortest = 3, kProved = 16, kPause = 8, kLongestPause = 256, kLongRest = 64;
  static constexpr double kLeastGain = 0.95, kClearLoss = 0.6;

  void rest() {
    rest_left_ = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    steps_ = 0;
    mean_ = 0;
  }

  double mean_ = 0;
  int32_t steps_ = 0, rest_left_ = 0, pause_ = kPause;
};

}  // namespace deepinfer
