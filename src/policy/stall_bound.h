// policy/stall_bound.h - how long a step of a worker may take before it counts as hung (cluster.md section 7).
//
// Twenty times what nearly all of its last steps took, two seconds at least: learnt from load reports, ten
// a second. Until there are enough of them, and as an upper limit, the operator's bound holds. Threads: a value for one thread.
//
//   bound.note(load.step_age_us);
//   const bool is_slow = load.step_age_us > bound.us(30'000'000);
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace deepinfer {

class StallBound {
 public:
  // 0: it is idle. What counts is the last age before a smaller one: while one step hangs it would else teach that this is usual.
  void note(int64_t age_us) {
    const int64_t last_us = std::exchange(last_us_, age_us);
    if (last_us <= 0 || age_us >= last_us || (learnt_us_ > 0 && last_us > learnt_us_)) return;
    ages_[next_++ % ages_.size()] = last_us;
    if (next_ < ages_.size()) return;
    std::array<int64_t, kAges> sorted = ages_;
    std::nth_element(sorted.begin(), sorted.begin() + kP99, sorted.end());
    learnt_us_ = std::max(kLeastUs, kFactor * sorted[kP99]);
  }
  // A worker was left for it: if that was a mistake, the same will not happen again and again.
  void relax() { learnt_us_ *= 2; }
  int64_t us(int64_t most_us) const { return learnt_us_ == 0 ? most_us : std::min(learnt_us_, most_us); }

 private:
  // Of 16 the second largest: one outlier teaches nothing.
  static constexpr size_t kAges = 16, kP99 = 14;
  static constexpr int64_t kFactor = 20, kLeastUs = 2'000'000;
  std::array<int64_t, kAges> ages_{};
  size_t next_ = 0;
  int64_t last_us_ = 0, learnt_us_ = 0;
};

}  // namespace deepinfer
