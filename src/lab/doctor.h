// lab/doctor.h - is this machine, or that server, well? A table of checks.
//
// The checks of a server are what clients of the OpenAI and Anthropic wires rely on; what a server need not have is "absent",
// not "failed".
// Threads: one.
//
//   std::vector<DoctorRow> rows = check_server({.url = "http://127.0.0.1:8080"});
//   print(doctor_table(rows));
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

struct DoctorRow {
  enum class Verdict { kOk, kFailed, kAbsent };
  std::string name;
  Verdict verdict = Verdict::kOk;
  std::string detail;
};

struct DoctorOptions {
  std::string url, key, model, ca_file;  // model "" = the first the server lists
  std::string device = "cpu";            // of this machine
  double timeout_seconds = 120;
};

std::vector<DoctorRow> check_server(const DoctorOptions& options);
// This machine, its kernel sets (best first; which one runs) and the shipped model on `device`.
std::vector<DoctorRow> check_machine(const std::string& device = "cpu");

std::string doctor_table(const std::vector<DoctorRow>& rows);
Json doctor_json(const std::vector<DoctorRow>& rows);
bool any_failed(const std::vector<DoctorRow>& rows);

}  // namespace deepinfer
