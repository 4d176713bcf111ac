#include "sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "base/json.h"

namespace deepinfer {
namespace {

Result<TraceRequest> parse_request(std::string_view line) {
  DI_TRY(const Json row, Json::parse(line));
  TraceRequest request;
  DI_TRY(const double ms, row.at("timestamp").to_double("timestamp"));
  request.arrival_us = ms * 1e3;
  DI_TRY(request.input_tokens, row.at("input_length").to_int64("input_length"));
  DI_TRY(request.output_tokens, row.at("output_length").to_int64("output_length"));
  if (request.input_tokens <= 0 || request.output_tokens < 0 || ms < 0)
    return invalid_argument("lengths and times must not be negative");
  const auto& ids = row.at("hash_ids").items();
  const int64_t blocks = static_cast<int64_t>(ids.size());
  if (blocks * kTraceBlock < request.input_tokens || (blocks - 1) * kTraceBlock >= request.input_tokens)
    return invalid_argument(
        fmt::format("{} hash_ids do not fit input_length {} in blocks of {}", blocks, request.input_tokens, kTraceBlock));
  request.blocks.reserve(ids.size());
  for (const Json& id : ids) {
    DI_TRY(const int64_t value, id.to_int64("hash_ids"));
    if (value < 0 || value > std::numeric_limits<uint32_t>::max())
      return invalid_argument("hash_ids must be from 0 to 4294967295");
    request.blocks.push_back(static_cast<uint32_t>(value));
  }
  return request;
}

}  // namespace

Result<std::vector<TraceRequest>> parse_trace(std::string_view lines, std::string_view file) {
  std::vector<TraceRequest> trace;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.empty()) continue;
    auto request = parse_request(line);
    if (!request) return corrupt(fmt::format("{}:{}: {}", file, number, request.error().message));
    if (!trace.empty() && request->arrival_us < trace.back().arrival_us)
      return corrupt(fmt::format("{}:{}: timestamp runs backwards", file, number));
    trace.push_back(*std::move(request));
  }
  return trace;
}

int64_t count_distinct_blocks(const std::vector<TraceRequest>& trace) {
  std::unordered_set<uint32_t> seen;
  for (const TraceRequest& request : trace) seen.insert(request.blocks.begin(), request.blocks.end());
  return static_cast<int64_t>(seen.size());
}

}  // namespace deepinfer
