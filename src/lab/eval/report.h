// lab/eval/report.h - what an evaluation came to: counts per kind, intervals, thresholds.
//
// Threads: values.
//
//   WilsonInterval range = wilson(97, 100);            // 0.915 .. 0.990
//   fmt::print("{}", report.table());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/figures.h"

namespace deepinfer {

// The 95 % interval of a share, by Wilson's score: honest for few cases and for shares near 0 and 1.
struct WilsonInterval {
  double low = 0, high = 1;
};
WilsonInterval wilson(int64_t right, int64_t count);

struct EvalCount {
  int64_t right = 0, judged = 0;
  int64_t errors = 0;    // nobody answered
  int64_t left_out = 0;  // cannot be asked here

  double share() const { return judged > 0 ? static_cast<double>(right) / static_cast<double>(judged) : 0; }
  void add(const EvalCount& other);
};

struct EvalReport {
  std::string suite;
  std::vector<std::pair<std::string, EvalCount>> kinds;  // in the order of the cases
  int64_t kept = 0;                                      // of an earlier run
  int64_t cases = 0;                                     // that were wanted
  int64_t prompt_tokens = 0, completion_tokens = 0;      // of this run
  double seconds = 0;
  bool interrupted = false;
  std::optional<Error> stopped;                // why the run ended early
  std::string left_out_reason, error_example;  // one of each

  EvalCount& of(const std::string& kind);
  EvalCount all() const;
  std::string table() const;
  // Rows "SUITE/KIND" (the share), "SUITE/KIND/low", "/high", "/right", "/cases", "/errors", "/left_out"; the kind "all" has
  // everything; "SUITE/tokens_per_second".
  FigureReport figures() const;
};

// Smallest shares by kind; "all" is the whole.
using EvalThresholds = std::map<std::string, double>;
// A JSON object or TOML: `arith = 0.9`, alone or in a table of the suite's name.
Result<EvalThresholds> read_thresholds(const std::string& path, const std::string& suite);
// One line for each threshold that is missed; kinds that were not asked on purpose (`asked` has them not) are passed over.
std::vector<std::string> missed(const EvalThresholds& thresholds, const EvalReport& report);

}  // namespace deepinfer
