// lab/eval/runner.h - asks the cases of a suite, many at once, judges, records and counts.
//
// Promise: a finished case is recorded before the next one of its place is asked, so nothing finished is lost, whatever ends
// the run; a case that cannot be answered is an error in the count, never a wrong answer; the run stops by itself when no
// case can be answered, or when nobody answered a whole round.
// Threads: run_eval() on one thread; it has `concurrency` threads of its own, which are gone when it returns.
//
//   DI_TRY(EvalReport report, run_eval(suite, cases, *target, tools, options, interrupted));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/eval/records.h"
#include "lab/eval/report.h"
#include "lab/eval/suite.h"
#include "lab/eval/target.h"

namespace deepinfer {

struct EvalProgress {
  int64_t done = 0, total = 0, right = 0, judged = 0;
};

struct EvalRunOptions {
  int32_t concurrency = 16;
  std::string output;  // records file, "" = none
  EvalSettings settings;
  std::function<void(const EvalProgress&)> progress;  // from any thread, one at a time
};

Result<EvalReport> run_eval(const EvalSuite& suite, const std::vector<EvalCase>& cases, EvalTarget& target,
                            const EvalTools& tools, const EvalRunOptions& options, const std::atomic<bool>& interrupted);

}  // namespace deepinfer
