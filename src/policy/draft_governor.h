// policy/draft_governor.h - whether drafting pays at all, and when to look again (speculation.md section 6, guard rail 1).
//
// gain = time the tokens would have taken one by one / time they took, over the last steps. Below 0.97 drafting stops for a
// pause, then a probe of 16 blocks looks again; each probe that fails doubles the pause, so that looking costs less than 1 % in
// the long run. A clear loss ends a probe after four blocks; where drafts that all fail cost less than that, as on a GPU, four
// say little. Blocks and not steps are counted because each is a sample: a step
// of eight sequences tells as much as eight steps of one, and costs as much.
// Promise: plain data.
// Threads: one.
//
//   if (governor.drafts()) ... draft, verify ...; governor.note(plain_us, spent_us, blocks);
//   else governor.rest();
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace deepinfer {

class DraftGovernor {
 public:
  bool drafts() const { return pause_left_ == 0; }
  double gain() const { return spent_us_ > 0 ? plain_us_ / spent_us_ : 1; }
  int64_t pauses() const { return pauses_; }

  // A step with drafts of so many sequences: what its tokens would have taken without, and what it took.
  void note(double plain_us, double spent_us, int64_t blocks) {
    plain_us_ = plain_us_ * kKeep + plain_us;
    spent_us_ = spent_us_ * kKeep + spent_us;
    blocks_ += blocks;
    if ((blocks_ >= kProbe && gain() < kLeastGain) || (blocks_ >= kShortProbe && gain() < kClearLoss)) return stop();
    if (blocks_ >= kProved) pause_ = kPause;
  }
  // Whether the next step while drafts() goes without all the same, so that the cost of such steps is known and stays fresh: one
  // of each power of two, then one of 512. Counts.
  bool compares() {
    ++awake_;
    return awake_ >= kFirstPlain && (awake_ % kPlainEvery == 0 || (awake_ < kPlainEvery && std::has_single_bit(awake_)));
  }
  // A step without, while drafts() is false.
  void rest() {
    if (pause_left_ > 0) --pause_left_;
  }

 private:
  static constexpr double kLeastGain = 0.97, kClearLoss = 0.6;
  static constexpr int64_t kProbe = 16, kShortProbe = 4, kProved = 256;  // blocks
  static constexpr int64_t kPause = 1024, kLongestPause = 16 * 1024;     // steps
  static constexpr uint64_t kFirstPlain = 8, kPlainEvery = 512;          // steps
  static constexpr double kKeep = 1 - 1.0 / 64;                          // of the sums per step

  void stop() {
    pause_left_ = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    ++pauses_;
    plain_us_ = spent_us_ = 0;
    blocks_ = 0;
  }

  double plain_us_ = 0, spent_us_ = 0;
  uint64_t awake_ = 0;  // steps
  int64_t blocks_ = 0, pause_left_ = 0, pause_ = kPause, pauses_ = 0;
};

}  // namespace deepinfer
