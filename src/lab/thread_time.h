// lab/thread_time.h - processor time of the calling thread, for figures that the rest of a machine must not disturb.
//
//   const double seconds = best_seconds(5, [&] { encode(text); });
#pragma once

#include <algorithm>
#include <ctime>
#include <limits>

namespace deepinfer {

// On an idle machine the same as the clock on the wall, on a busy one still one core's work.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Of `repeats` runs, at least one.
template <class Work>
double best_seconds(int repeats, Work work) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < std::max(repeats, 1); ++i) {
    const double start = thread_seconds();
    work();
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

}  // namespace deepinfer
