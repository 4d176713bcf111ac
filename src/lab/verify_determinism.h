// lab/verify_determinism.h - proves on this machine that an answer depends on its request and nothing else.
//
// A set of requests (prompt lengths around every border, several ways of drawing) is answered once alone on a cold engine;
// then again in company, in other chunks, from the cache, after preemption, with other thread counts, on a device that does
// its work late. Token ids and log-probabilities must be equal bit for bit (determinism.md section 7). Axes whose subject is
// not built yet are listed as such.
// Promise: rows come in a fixed order; a row that does not hold names the first request and token that differ.
// Threads: one.
//
//   DI_TRY(const DeterminismReport report, verify_determinism({.host = settings}));
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "host/settings.h"
#include "lab/traced_model.h"

namespace deepinfer {

struct DeterminismOptions {
  HostSettings host;  // model, context and kept tokens; the axes set the rest
  bool full = false;  // more requests and every value of every axis
  std::string axis;   // this one only; "" = all
  // Rows that do not hold: both ways once more, value by value, until the first that differs (lab/traced_model.h); the first such
  // row's request goes to the file `capture`, "" = none.
  bool bisect = false;
  std::string capture;
  ValueHook hook;  // sees every value of every forward pass; a test may spoil some
  // Called before each row.
  std::function<void(size_t done, size_t total, const std::string& row)> progress;
};

struct DeterminismRow {
  std::string replay, axis, value;
  int32_t requests = 0;  // compared; 0 = not built
  bool holds = true;
  std::string what;  // the first difference, or what is missing
};

struct DeterminismReport {
  std::vector<DeterminismRow> rows;
  double seconds = 0;

  bool holds() const;
  std::string table() const;
  Json json() const;
};

Result<DeterminismReport> verify_determinism(const DeterminismOptions& options);

}  // namespace deepinfer
