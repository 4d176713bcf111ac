#include "lab/figures.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/machine.h"

namespace deepinfer {
namespace {

// Four significant digits are more than a measurement holds.
std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

Json optional_number(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::string cpu_name() {
  const Result<std::string> text = read_file("/proc/cpuinfo");
  if (!text) return "unknown";
  const size_t key = text->find("model name");
  const size_t colon = text->find(": ", key);
  if (key == std::string::npos || colon == std::string::npos) return "unknown";
  return text->substr(colon + 2, text->find('\n', colon) - colon - 2);
}

}  // namespace

Json machine_description() {
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return Json::object({{"cpu", cpu_name()}, {"processors", available_processors()}, {"memory_bytes", memory}});
}

int64_t peak_memory_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

std::string FigureReport::json(const std::string& version) const {
  std::vector<Json> rows;
  for (const FigureRow& row : rows_) {
    Json out = Json::object({{"name", row.name}, {"value", row.value}, {"unit", row.unit}});
    out.set("limit", optional_number(row.limit));
    out.set("share", row.limit && *row.limit > 0 ? Json(row.value / *row.limit) : Json());
    out.set("baseline", row.baseline.empty() ? Json() : Json(row.baseline));
    out.set("ratio", optional_number(row.ratio));
    rows.push_back(std::move(out));
  }
  return Json::object({{"command", command_},
                       {"version", version},
                       {"machine", machine_description()},
                       {"rows", Json::array(std::move(rows))}})
             .dump() +
         "\n";
}

std::string FigureReport::table() const {
  size_t width = 4;
  for (const FigureRow& row : rows_) width = std::max(width, row.name.size());
  std::string out;
  for (const FigureRow& row : rows_) {
    out += fmt::format("{:<{}}  {:>10} {}", row.name, width, short_number(row.value), row.unit);
    if (row.limit && *row.limit > 0) {
      out += fmt::format("  ({:.0f} % of the limit {})", 100 * row.value / *row.limit, short_number(*row.limit));
    }
    if (row.ratio) out += fmt::format("  ({} x {})", short_number(*row.ratio), row.baseline);
    out += '\n';
  }
  return out;
}

}  // namespace deepinfer
