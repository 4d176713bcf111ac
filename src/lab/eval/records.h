// lab/eval/records.h - the records file of an evaluation: a line of settings, then one line a case as it is finished.
//
// {"eval": 1, "suite", "model", "settings"}, then {"id", "kind", "case", "right", "why", "answer", ...}
// (docs/formats/eval_suites.md). A case whose line has a verdict is not asked again; one with an error is.
// Promise: that of RecordFile; records of other settings, another model or a changed case are refused with the reason.
// Threads: one at a time.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/record_file.h"
#include "lab/eval/suite.h"

namespace deepinfer {

// What happened to one case.
struct EvalOutcome {
  std::optional<EvalVerdict> verdict;  // none: `error` says why
  bool left_out = false;               // the error is one that no answer of the model could have changed
  std::optional<Error> error;
  EvalAnswer answer;
  double seconds = 0;
};

// Depends on question and check; in every record, so that a changed case is noticed.
std::string case_digest(const EvalCase& item);

class EvalRecords {
 public:
  // Header: what the records depend on.
  static Result<EvalRecords> open(const std::string& path, const Json& header, const std::vector<EvalCase>& cases);

  // The verdicts that are there, by case id.
  const std::map<std::string, bool>& known() const { return known_; }
  Status append(const EvalCase& item, const EvalOutcome& outcome);
  Status sync() { return file_->sync(); }

 private:
  EvalRecords() = default;
  std::optional<RecordFile> file_;
  std::map<std::string, bool> known_;
};

}  // namespace deepinfer
