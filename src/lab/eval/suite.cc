#include "lab/eval/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/file.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "host/compressed_file.h"
#include "lab/eval/answer_text.h"
#include "lab/eval/suite_parts.h"

namespace deepinfer {
namespace {

const std::array<EvalSuite, 6> kSuites = {{
    {.name = "tasks", .summary = "the shipped model's own abilities", .max_tokens = 256, .read = read_task, .judge = judge_task},
    {.name = "gsm8k", .summary = "school arithmetic in words", .max_tokens = 1024, .read = read_gsm8k, .judge = judge_gsm8k},
    {.name = "humaneval",
     .summary = "Python functions, run against their tests",
     .max_tokens = 1024,
     .needs_python = true,
     .read = read_humaneval,
     .judge = judge_humaneval},
    {.name = "aime", .summary = "competition mathematics", .max_tokens = 4096, .read = read_aime, .judge = judge_aime},
    {.name = "gpqa", .summary = "graduate science, four choices", .max_tokens = 4096, .read = read_gpqa, .judge = judge_gpqa},
    {.name = "hle",
     .summary = "expert questions",
     .max_tokens = 4096,
     .note = "free-form answers are compared after normalisation, not by a judging model: scores are lower bounds",
     .read = read_hle,
     .judge = judge_hle},
}};

bool has_image(const Json& request) {
  for (const Json& message : request.at("messages").items()) {
    for (const Json& part : message.at("content").items()) {
      if (part.at("type").is_string() && part.at("type").as_string() == "image_url") return true;
    }
  }
  return false;
}

Status load_file(const EvalSuite& suite, const std::string& path, const EvalSettings& settings, std::set<std::string>& seen,
                 std::vector<EvalCase>& out) {
  DI_TRY(const std::string text, read_maybe_compressed(path));
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const auto failed = [&](const std::string& reason) { return corrupt(fmt::format("{}:{}: {}", path, number, reason)); };
    if (!is_valid_utf8(line)) return failed("not valid UTF-8");
    const Result<Json> json = Json::parse(line);
    if (!json) return failed("no JSON: " + json.error().message);
    if (!json->is_object()) return failed(fmt::format("a case is a JSON object, not {}", json->kind_name()));
    Result<EvalCase> item = suite.read(*json, number, settings);
    if (!item) return failed(item.error().message);
    if (!seen.insert(item->id).second) return failed(fmt::format("the id \"{}\" was used before", item->id));
    item->has_image = has_image(item->request);
    out.push_back(std::move(*item));
  }
  return {};
}

Result<std::vector<std::string>> files_of(const std::string& path) {
  if (!is_directory(path)) return std::vector<std::string>{path};
  DI_TRY(const std::vector<std::string> names, list_directory(path));
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (name.ends_with(".jsonl") || name.ends_with(".jsonl.zst")) files.push_back(join_path(path, name));
  }
  if (files.empty()) return not_found(fmt::format("{}: no *.jsonl in this folder", path));
  return files;
}

}  // namespace

std::span<const EvalSuite> eval_suites() { return kSuites; }

Result<const EvalSuite*> find_suite(const std::string& name) {
  std::vector<std::string> names;
  for (const EvalSuite& suite : kSuites) {
    if (suite.name == name) return &suite;
    names.push_back(suite.name);
  }
  return invalid_argument(fmt::format("eval {}: known are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

Result<std::vector<EvalCase>> load_cases(const EvalSuite& suite, const std::string& path, const EvalSettings& settings) {
  EvalSettings complete = settings;
  if (complete.max_tokens == 0) complete.max_tokens = suite.max_tokens;
  DI_TRY(const std::vector<std::string> files, files_of(path));
  std::vector<EvalCase> cases;
  std::set<std::string> seen;
  for (const std::string& file : files) DI_CHECK_OK(load_file(suite, file, complete, seen, cases));
  if (cases.empty()) return corrupt(fmt::format("{}: holds no case", path));
  return cases;
}

Result<std::vector<EvalCase>> select_cases(std::vector<EvalCase> cases, const std::vector<std::string>& kinds, int64_t limit) {
  std::vector<std::string> known;
  for (const EvalCase& item : cases) {
    if (std::find(known.begin(), known.end(), item.kind) == known.end()) known.push_back(item.kind);
  }
  for (const std::string& kind : kinds) {
    if (std::find(known.begin(), known.end(), kind) == known.end()) {
      return invalid_argument(fmt::format("--kinds: no case is of kind '{}'{} (there are {})", kind, did_you_mean(kind, known),
                                          fmt::join(known, ", ")));
    }
  }
  std::map<std::string, int64_t> taken;
  std::erase_if(cases, [&](const EvalCase& item) {
    if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), item.kind) == kinds.end()) return true;
    return limit > 0 && ++taken[item.kind] > limit;
  });
  return cases;
}

void finish_request(Json& request, bool thinking, const EvalSettings& settings) {
  if (!settings.think.empty()) thinking = settings.think != "off";
  request.set("thinking", Json::object({{"type", thinking ? "enabled" : "disabled"}}));
  if (thinking && !settings.think.empty()) request.set("reasoning_effort", settings.think);
  request.set("temperature", static_cast<double>(settings.temperature));
  request.set("max_tokens", settings.max_tokens);
  request.set("seed", settings.seed);
  for (const auto& [name, value] : settings.body.members()) {
    request.set(name, value);
    if (value.is_null()) std::erase_if(request.members(), [&](const Json::Member& member) { return member.first == name; });
  }
}

Json ask_request(std::string_view text, const EvalSettings& settings) {
  Json request = Json::object({{"messages", Json::array({Json::object({{"role", "user"}, {"content", text}})})}});
  finish_request(request, false, settings);
  return request;
}

std::optional<std::string> optional_column(const Json& line, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Json& value = line.at(name);
    if (value.is_string()) return value.as_string();
    if (value.is_number()) return value.number_text();
  }
  return std::nullopt;
}

Result<std::string> column(const Json& line, std::initializer_list<std::string_view> names) {
  std::optional<std::string> found = optional_column(line, names);
  if (!found || trimmed(*found).empty())
    return corrupt(fmt::format("\"{}\" must be there, a string that is not empty", *names.begin()));
  return std::move(*found);
}

std::string case_id(const Json& line, std::initializer_list<std::string_view> names, std::string_view prefix, int64_t number) {
  if (const auto id = optional_column(line, names); id && !id->empty()) return *id;
  return fmt::format("{}-{}", prefix, number);
}

std::string kind_name(std::string_view text) {
  std::string out;
  for (const char c : trimmed(text)) {
    const bool plain = c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : plain ? c : '_';
  }
  return out;
}

std::string shown(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out;
  for (size_t at = 0; at < text.size() && out.size() < kMost;) {
    const uint32_t code_point = next_code_point(text, at);
    append_utf8(out, code_point < ' ' ? ' ' : code_point);
    if (out.size() >= kMost && at < text.size()) out += "...";
  }
  return "'" + out + "'";
}

}  // namespace deepinfer
