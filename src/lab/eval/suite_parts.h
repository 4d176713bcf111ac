// lab/eval/suite_parts.h - what suites are made of. Inside lab/eval only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lab/eval/suite.h"

namespace deepinfer {

// A request with one user message.
Json ask_request(std::string_view text, const EvalSettings& settings);
// Completes a request that has its messages. `thinking` is what the case wants when the settings leave it open.
void finish_request(Json& request, bool thinking, const EvalSettings& settings);

// The first of `names` the line has, as text (a number as it is written); an Error that names the first when none is there.
Result<std::string> column(const Json& line, std::initializer_list<std::string_view> names);
std::optional<std::string> optional_column(const Json& line, std::initializer_list<std::string_view> names);
// The column that identifies a case, or `prefix` and the line number.
std::string case_id(const Json& line, std::initializer_list<std::string_view> names, std::string_view prefix, int64_t number);
// "High-level domain" -> "high-level_domain".
std::string kind_name(std::string_view text);

// At most 60 characters in one line, for `why`.
std::string shown(std::string_view text);

Result<EvalCase> read_task(const Json& line, int64_t number, const EvalSettings& settings);
Result<EvalVerdict> judge_task(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools);
Result<EvalCase> read_gsm8k(const Json& line, int64_t number, const EvalSettings& settings);
Result<EvalVerdict> judge_gsm8k(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools);
Result<EvalCase> read_aime(const Json& line, int64_t number, const EvalSettings& settings);
Result<EvalVerdict> judge_aime(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools);
Result<EvalCase> read_gpqa(const Json& line, int64_t number, const EvalSettings& settings);
Result<EvalVerdict> judge_gpqa(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools);
Result<EvalCase> read_hle(const Json& line, int64_t number, const EvalSettings& settings);
Result<EvalVerdict> judge_hle(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools);
Result<EvalCase> read_humaneval(const Json& line, int64_t number, const EvalSettings& settings);
Result<EvalVerdict> judge_humaneval(const EvalCase& item, const EvalAnswer& answer, const EvalTools& tools);

}  // namespace deepinfer
