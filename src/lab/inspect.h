// lab/inspect.h - what a checkpoint holds, and whether that is what its config asks for.
//
// Opens the directory, derives the layer plan, compares the tensors with the list of model.md section 3 and scans all values.
// Promise: differences are collected, not only the first one; what stops the reading altogether (no config, damaged header)
// is an Error.
//
//   DI_TRY(const InspectReport report, inspect_checkpoint(dir));
//   fmt::print("{}", json ? report.json().dump(2) : report.text());
//   return report.complete() ? 0 : 1;
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "core/model_shape.h"
#include "formats/checkpoint.h"

namespace deepinfer {

struct TensorGroup {
  int64_t tensors = 0, bytes = 0;
};

struct InspectReport {
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelShape shape;
  // Part of the model ("attention", "routed experts", ...) and dtype to what belongs there.
  std::map<std::pair<std::string, std::string>, TensorGroup> groups;
  std::vector<std::string> missing, extra;  // tensor names, sorted
  std::vector<std::string> faults;          // one line each: wrong dtype, shape or value, tables that do not fit

  bool complete() const { return missing.empty() && extra.empty() && faults.empty(); }
  // All three as lines: "missing: NAME", "extra: NAME", "fault: ...".
  std::vector<std::string> problems() const;
  // `all_tensors` appends one line per tensor.
  std::string text(bool all_tensors = false) const;
  Json json(bool all_tensors = false) const;
};

// `progress` tells about the scan of the values.
Result<InspectReport> inspect_checkpoint(const std::string& directory, const LoadProgress& progress = {});
// The same for a checkpoint that is open already, in memory for example.
Result<InspectReport> inspect_checkpoint(std::shared_ptr<const Checkpoint> checkpoint, const LoadProgress& progress = {});

}  // namespace deepinfer
