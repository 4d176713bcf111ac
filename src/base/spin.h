// base/spin.h - waiting that keeps the processor, for a short time.
//
//   if (!spin_until([&] { return call.load() != seen; })) call.wait(seen);
#pragma once

#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deepinfer {

// How long a thread looks for what comes next before it parks. A parked one costs a wake-up of about 50 us; the gaps
// between the operations of a step are below 20 us, those between steps of a busy engine below 200 us.
inline constexpr auto kSpinTime = std::chrono::microseconds(300);
// After this long a waiting thread offers its processor: where more threads than processors run, the one waited for may
// have none. On an idle machine a yield costs under 1 us, on a busy one spinning through was most of the time of a step.
inline constexpr auto kYieldAfter = std::chrono::microseconds(20);

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until `done` holds or the time is over; gives whether it holds.
template <class Done>
bool spin_until(Done done, std::chrono::microseconds most = kSpinTime) {
  constexpr int kPausesPerClockRead = 64;
  const auto begin = std::chrono::steady_clock::now();
  for (auto waited = begin - begin; waited < most; waited = std::chrono::steady_clock::now() - begin) {
    if (waited > kYieldAfter) std::this_thread::yield();
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (done()) return true;
      cpu_relax();
    }
  }
  return done();
}

}  // namespace deepinfer
