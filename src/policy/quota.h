// policy/quota.h - how much one key may ask in a minute.
//
// A bucket that leaks: requests and tokens fill it, a minute empties a full one. Tokens are known when an answer has ended, so a
// key may go over once and then waits. Threads: a value for one thread.
//
//   if (const int64_t seconds = quota.wait_s(limits, now_us)) ...   // refuse, to come again then
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace deepinfer {

struct QuotaLimits {
  int64_t requests = 0, tokens = 0;  // a minute; 0 = any number
};

class Quota {
 public:
  // 0: one more may come now.
  int64_t wait_s(const QuotaLimits& limits, int64_t now_us) {
    const double minutes = static_cast<double>(now_us - seen_us_) / 60e6;
    seen_us_ = now_us;
    const auto leak = [&](double used, int64_t limit) {
      return limit == 0 ? 0 : std::max(0.0, used - minutes * static_cast<double>(limit));
    };
    requests_ = leak(requests_, limits.requests);
    tokens_ = leak(tokens_, limits.tokens);
    return std::max(seconds(requests_ + 1, limits.requests), seconds(tokens_, limits.tokens));
  }
  void charge(int64_t requests, int64_t tokens) {
    requests_ += static_cast<double>(requests);
    tokens_ += static_cast<double>(tokens);
  }

 private:
  static int64_t seconds(double used, int64_t limit) {
    const auto most = static_cast<double>(limit);
    return limit == 0 || used <= most ? 0 : static_cast<int64_t>(std::ceil((used - most) / most * 60));
  }
  double requests_ = 0, tokens_ = 0;
  int64_t seen_us_ = 0;
};

}  // namespace deepinfer
