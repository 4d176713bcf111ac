// lab/sweep_requests.h - the traffic of the speculation sweep: texts that are easy and hard to draft.
//
// Threads: pure functions.
//
//   DI_TRY(auto requests, sweep_requests(host, {SweepText::kEasy, false, 8}));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"
#include "host/host.h"

namespace deepinfer {

enum class SweepText { kEasy, kHard, kAdversarial, kMixed };

struct SweepTraffic {
  SweepText text = SweepText::kEasy;
  bool sampled = false;  // at temperature 1; else greedily
  int32_t streams = 1;   // at once
};

inline constexpr int64_t kSweepContext = 256;  // no request needs more

const char* text_name(SweepText text);
// "spec/easy/greedy/8".
std::string name_of(const SweepTraffic& traffic);
// At least eight, each with a seed of its own and, if easy, a task of its own.
Result<std::vector<Request>> sweep_requests(const Host& host, const SweepTraffic& traffic);
// So that they take about so many steps with `streams` at once: fewer rounds of them first, then shorter answers, 24 tokens at
// least.
void shorten(std::vector<Request>& requests, int32_t streams, double steps);

}  // namespace deepinfer
