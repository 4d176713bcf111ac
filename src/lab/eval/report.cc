#include "lab/eval/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"

// The packaged library speaks in exceptions; as headers only, and without them, it returns its errors.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace deepinfer {
namespace {

constexpr double kZ = 1.959963984540054;  // 97.5 % of the normal distribution lie below

std::string count_row(const std::string& kind, const EvalCount& count, size_t width) {
  const WilsonInterval range = wilson(count.right, count.judged);
  std::string row = fmt::format("{:<{}}  {:>5}  {:>5}", kind, width, count.judged, count.right);
  if (count.judged > 0) {
    row += fmt::format("  {:>5.1f} %  {:>5.1f} .. {:>5.1f} %", 100 * count.share(), 100 * range.low, 100 * range.high);
  }
  if (count.errors > 0) row += fmt::format("  {} without an answer", count.errors);
  if (count.left_out > 0) row += fmt::format("  {} left out", count.left_out);
  return row + '\n';
}

Status add_threshold(EvalThresholds& out, const std::string& path, const std::string& kind, std::optional<double> share) {
  if (!share || !(*share >= 0 && *share <= 1))
    return invalid_argument(fmt::format("{}: {} must be a share from 0 to 1", path, kind));
  out[kind] = *share;
  return {};
}

Status read_json_thresholds(const Json& json, const std::string& path, const std::string& suite, EvalThresholds& out) {
  for (const auto& [key, value] : json.members()) {
    if (value.is_object()) {
      if (key == suite) DI_CHECK_OK(read_json_thresholds(value, path, suite, out));
      continue;
    }
    const Result<double> share = value.to_double(key);
    DI_CHECK_OK(add_threshold(out, path, key, share ? std::optional<double>(*share) : std::nullopt));
  }
  return {};
}

Status read_toml_thresholds(const toml::table& table, const std::string& path, const std::string& suite, EvalThresholds& out) {
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    if (const toml::table* inner = value.as_table()) {
      if (name == suite) DI_CHECK_OK(read_toml_thresholds(*inner, path, suite, out));
      continue;
    }
    DI_CHECK_OK(add_threshold(out, path, name, value.value<double>()));
  }
  return {};
}

}  // namespace

WilsonInterval wilson(int64_t right, int64_t count) {
  if (count <= 0) return {};
  const double n = static_cast<double>(count), p = static_cast<double>(right) / n;
  const double scale = 1 + kZ * kZ / n, middle = p + kZ * kZ / (2 * n);
  const double half = kZ * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  // At the ends the formula gives exactly 0 and 1; so must we.
  return {right == 0 ? 0 : std::max(0.0, (middle - half) / scale), right == count ? 1 : std::min(1.0, (middle + half) / scale)};
}

void EvalCount::add(const EvalCount& other) {
  right += other.right;
  judged += other.judged;
  errors += other.errors;
  left_out += other.left_out;
}

EvalCount& EvalReport::of(const std::string& kind) {
  for (auto& [name, count] : kinds) {
    if (name == kind) return count;
  }
  return kinds.emplace_back(kind, EvalCount()).second;
}

EvalCount EvalReport::all() const {
  EvalCount sum;
  for (const auto& [kind, count] : kinds) sum.add(count);
  return sum;
}

std::string EvalReport::table() const {
  size_t width = 4;
  for (const auto& [kind, count] : kinds) width = std::max(width, kind.size());
  std::string out = fmt::format("{:<{}}  cases  right  share    95 % interval\n", "kind", width);
  for (const auto& [kind, count] : kinds) out += count_row(kind, count, width);
  if (kinds.size() > 1) out += count_row("all", all(), width);
  if (!left_out_reason.empty()) out += fmt::format("left out: {}\n", left_out_reason);
  if (!error_example.empty()) out += fmt::format("without an answer: {}\n", error_example);
  if (kept > 0) out += fmt::format("{} verdicts of an earlier run\n", kept);
  if (completion_tokens > 0) {
    out += fmt::format("{} tokens answered in {:.1f} s ({:.0f} tokens/s), prompts {} tokens\n", completion_tokens, seconds,
                       static_cast<double>(completion_tokens) / std::max(seconds, 1e-9), prompt_tokens);
  }
  return out;
}

FigureReport EvalReport::figures() const {
  FigureReport report("eval " + suite);
  const auto add = [&](const std::string& kind, const EvalCount& count) {
    const std::string name = fmt::format("{}/{}", suite, kind);
    const WilsonInterval range = wilson(count.right, count.judged);
    report.add({.name = name, .value = count.share(), .unit = "share"});
    report.add({.name = name + "/low", .value = range.low, .unit = "share"});
    report.add({.name = name + "/high", .value = range.high, .unit = "share"});
    report.add({.name = name + "/right", .value = static_cast<double>(count.right), .unit = "cases"});
    report.add({.name = name + "/cases", .value = static_cast<double>(count.judged), .unit = "cases"});
    report.add({.name = name + "/errors", .value = static_cast<double>(count.errors), .unit = "cases"});
    report.add({.name = name + "/left_out", .value = static_cast<double>(count.left_out), .unit = "cases"});
  };
  for (const auto& [kind, count] : kinds) add(kind, count);
  add("all", all());
  report.add({.name = suite + "/tokens_per_second",
              .value = static_cast<double>(completion_tokens) / std::max(seconds, 1e-9),
              .unit = "tokens/s"});
  return report;
}

Result<EvalThresholds> read_thresholds(const std::string& path, const std::string& suite) {
  DI_TRY(const std::string text, read_file(path));
  EvalThresholds out;
  if (path.ends_with(".json")) {
    const Result<Json> json = Json::parse(text);
    if (!json || !json->is_object()) {
      return corrupt(fmt::format("{}: not a JSON object{}", path, json ? "" : ": " + json.error().message));
    }
    DI_CHECK_OK(read_json_thresholds(*json, path, suite, out));
  } else {
    const toml::parse_result table = toml::parse(text);
    if (!table) {
      return corrupt(fmt::format("{}:{}: {}", path, table.error().source().begin.line, table.error().description()));
    }
    DI_CHECK_OK(read_toml_thresholds(table.table(), path, suite, out));
  }
  if (out.empty()) return invalid_argument(fmt::format("{}: holds no threshold for {}", path, suite));
  return out;
}

std::vector<std::string> missed(const EvalThresholds& thresholds, const EvalReport& report) {
  constexpr double kRounding = 1e-9;
  std::vector<std::string> out;
  for (const auto& [kind, share] : thresholds) {
    const auto found =
        std::find_if(report.kinds.begin(), report.kinds.end(), [&](const auto& entry) { return entry.first == kind; });
    if (found == report.kinds.end() && kind != "all") continue;
    const EvalCount count = found == report.kinds.end() ? report.all() : found->second;
    if (count.judged == 0) {
      out.push_back(fmt::format("{}: nothing was judged, at least {:.1f} % is wanted", kind, 100 * share));
    } else if (count.share() < share - kRounding) {
      out.push_back(fmt::format("{}: {:.1f} % ({} of {}), at least {:.1f} % is wanted", kind, 100 * count.share(), count.right,
                                count.judged, 100 * share));
    }
  }
  return out;
}

}  // namespace deepinfer
