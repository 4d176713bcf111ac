// server/batch.h - offline inference over a file in the OpenAI batch format.
//
// Input: JSON Lines of {custom_id, method: "POST", url: "/v1/chat/completions", body}. Output: one record a line in the order
// of the input: {id, custom_id, response: {status_code, request_id, body} | null, error: {code, message, line} | null}.
// Many requests are in flight in the engine. Records of an earlier run stay and are not computed again.
// Promise: a bad line gives an error record and does not stop the rest; what was written is whole whatever happens;
// after an interruption the same command goes on where it stopped.
// Threads: one.
//
//   DI_TRY(BatchReport report, run_batch(*host, {.input = "in.jsonl", .output = "out.jsonl"}, interrupted));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/host.h"

namespace deepinfer {

struct BatchOptions {
  std::string input, output;
  int64_t created = 0;                                                    // `created` of the answers, seconds since 1970
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;  // of the input
  std::vector<std::string> models;                                        // names a request may use; empty = any
  int32_t priority = 0;                                                   // of its requests in the engine
  std::string tenant;                                                     // whose cached prompts they share
  size_t max_in_flight = 0;                                               // 0 = as many as the engine takes
};

struct BatchReport {
  int64_t answered = 0, failed = 0;  // records of this run: with status 200, with anything else
  int64_t kept = 0;                  // of an earlier run
  int64_t prompt_tokens = 0, completion_tokens = 0;
  bool interrupted = false;
  std::string first_error;  // of the records of this run
};

Result<BatchReport> run_batch(Host& host, const BatchOptions& options, std::atomic<bool>& interrupted);

}  // namespace deepinfer
