// lab/figures.h - measured figures, as a table for people and as one JSON object for scripts.
//
// A row says what was measured, the physical limit measured in the same run where there is one, and the neighbour's value
// where something else was measured beside it. Row names are stable.
//
//   FigureReport report("bench decode");
//   report.add({.name = "decode/1 stream", .value = 612.4, .unit = "tokens/s"});
//   fmt::print("{}", json ? report.json() : report.table());
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace deepinfer {

struct FigureRow {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<double> limit;  // same unit; share = value / limit
  std::string baseline;         // what `ratio` compares with
  std::optional<double> ratio;  // value / the baseline's value
};

class FigureReport {
 public:
  explicit FigureReport(std::string command) : command_(std::move(command)) {}
  void add(FigureRow row) { rows_.push_back(std::move(row)); }
  const std::vector<FigureRow>& rows() const { return rows_; }

  // {"command", "version", "machine": {...}, "rows": [...]}, one line.
  std::string json(const std::string& version) const;
  std::string table() const;

 private:
  std::string command_;
  std::vector<FigureRow> rows_;
};

// {"cpu": model name, "processors": usable ones, "memory_bytes": physical}.
Json machine_description();

// Largest resident size of this process so far.
int64_t peak_memory_bytes();

}  // namespace deepinfer
