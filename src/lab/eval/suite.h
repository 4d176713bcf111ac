// lab/eval/suite.h - what is asked and how an answer is judged: one table of suites.
//
// A suite is three functions: a line of its file to a case, a case to a Chat Completions request, a case and an answer to a
// verdict. Where the answer comes from is not its business (eval/target.h), nor how many are asked at once (eval/runner.h).
// File formats: docs/formats/eval_tasks.md and docs/formats/eval_suites.md.
// Promise: any bytes give cases or an Error that names file and line; a verdict depends on case and answer only.
// Threads: suites are constants; judge() from any thread.
//
//   DI_TRY(const EvalSuite* suite, find_suite("gsm8k"));
//   DI_TRY(std::vector<EvalCase> cases, load_cases(*suite, "test.jsonl", settings));
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

// What changes the questions. Part of what a records file is bound to.
struct EvalSettings {
  std::string think;       // "" = as the suite has it, else off | low | high | max
  int64_t max_tokens = 0;  // 0 = the suite's
  float temperature = 0;
  uint64_t seed = 0;
  Json body = Json::object();  // members added to every request, null ones removed
};

struct EvalCase {
  std::string id, kind;
  Json request;  // body of a Chat Completions request, without `model`
  Json check;    // what judge() needs; the suite's own form
  bool has_image = false;
};

// An answer as the judge sees it.
struct EvalAnswer {
  std::string content, reasoning;
  Json tool_calls = Json::array();  // of {"name", "arguments": text}
  bool ended = true;                // its turn; false when the limit of tokens cut it off
  int64_t prompt_tokens = 0, completion_tokens = 0;
};

struct EvalVerdict {
  bool right = false;
  std::string why;  // one line
};

// What judging needs from outside.
struct EvalTools {
  // Runs an untrusted program; no value when it ended well, else why not. An Error when it could not be run at all.
  std::function<Result<std::optional<std::string>>(const std::string& program)> run_python;
};

struct EvalSuite {
  std::string name, summary;
  int64_t max_tokens = 0;  // of an answer
  bool needs_python = false;
  std::string note;  // how it judges, where that is not what others do
  Result<EvalCase> (*read)(const Json& line, int64_t number, const EvalSettings& settings) = nullptr;
  Result<EvalVerdict> (*judge)(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools) = nullptr;
};

std::span<const EvalSuite> eval_suites();
Result<const EvalSuite*> find_suite(const std::string& name);

// A file (`.zst` too), or every *.jsonl of a folder in the order of names.
Result<std::vector<EvalCase>> load_cases(const EvalSuite& suite, const std::string& path, const EvalSettings& settings);
// The first `limit` of each kind (0 = all) of the listed kinds (empty = all).
Result<std::vector<EvalCase>> select_cases(std::vector<EvalCase> cases, const std::vector<std::string>& kinds, int64_t limit);

}  // namespace deepinfer
