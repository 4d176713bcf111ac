// base/clock.h - time as an argument, so that deadlines and ages can be tested without waiting.
//
// Threads: now_us() from any thread.
//
//   const SteadyClock clock;
//   const int64_t deadline_us = clock.now_us() + 30'000'000;
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace deepinfer {

// Microseconds since some moment; never goes back (DateClock apart).
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_us() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t now_us() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

// Microseconds since 1970, for what is written down and read after a restart. Moves when the machine's date is set, also back.
class DateClock final : public Clock {
 public:
  int64_t now_us() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

// Stands until it is moved.
class ManualClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_.load(); }
  void advance_us(int64_t us) { now_us_ += us; }

 private:
  std::atomic<int64_t> now_us_{1};
};

}  // namespace deepinfer
