// lab/eval/target.h - who is asked: an engine in this process, or a server with the Chat Completions interface.
//
// Promise: ask() returns an answer or an Error that says why there is none: kCancelled when interrupted; kPermission or
// kNotFound when no case can be answered (key, model or address is wrong); kUnavailable, kDeadline or kIo when the other side
// was not there; anything else concerns this case alone. A server that is busy or gone is tried again with growing pauses.
// Threads: ask() from any number of threads at once; the targets must outlive them.
//
//   DI_TRY(auto target, open_url_target({.url = "http://127.0.0.1:8080"}, interrupted));
//   DI_TRY(EvalAnswer answer, target->ask(request, interrupted));
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "host/host.h"
#include "lab/eval/suite.h"

namespace deepinfer {

class EvalTarget {
 public:
  virtual ~EvalTarget() = default;
  // Says which model answers; records of one model are not continued with another.
  virtual std::string model() const = 0;
  // A Chat Completions body without `model`.
  virtual Result<EvalAnswer> ask(const Json& request, const std::atomic<bool>& interrupted) = 0;
};

// REQUIRES: the host outlives the target.
std::unique_ptr<EvalTarget> make_local_target(Host& host);

struct UrlTargetOptions {
  std::string url;    // with or without /v1
  std::string model;  // "" = the only one the server has
  std::string key;    // sent as bearer token
  std::string ca_file;
  int64_t timeout_us = 600'000'000;  // without a byte
  int32_t tries = 8;                 // of one case
  int64_t first_pause_us = 500'000;  // doubles with each try
};
Result<std::unique_ptr<EvalTarget>> open_url_target(const UrlTargetOptions& options, const std::atomic<bool>& interrupted);

// The body of a Chat Completions response as an answer.
Result<EvalAnswer> answer_of_response(const Json& body);

// How long to wait before try number `tries_done` + 1: what Retry-After says (seconds or a date; at most five minutes), else
// doubling from `first_us` to 30 s, less up to a quarter that depends on `salt`, so that many cases do not come back at once.
int64_t retry_pause_us(int tries_done, int64_t first_us, std::string_view retry_after, int64_t now_seconds, uint64_t salt);

}  // namespace deepinfer
