// sim/trace.h - recorded traffic without text: when, how long, and which blocks of the prompt are the same.
//
// The format of the Mooncake traces (FAST'25 release): one JSON object a line with `timestamp` (ms, not decreasing),
// `input_length`, `output_length` and `hash_ids`, one id per kTraceBlock tokens, equal where the block and everything before it
// is equal.
//
//   DI_TRY(const std::vector<TraceRequest> trace, parse_trace(lines, "conversation_trace.jsonl"));
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

inline constexpr int64_t kTraceBlock = 512;

struct TraceRequest {
  double arrival_us = 0;
  int64_t input_tokens = 0, output_tokens = 0;
  std::vector<uint32_t> blocks;
};

// Errors: a line that is no such object, times that run backwards, blocks that do not fit the length; each names file and line.
Result<std::vector<TraceRequest>> parse_trace(std::string_view lines, std::string_view file);

int64_t count_distinct_blocks(const std::vector<TraceRequest>& trace);

}  // namespace deepinfer
