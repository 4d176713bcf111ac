// server/access_log.h - one JSON line a request.
//
// Lines are collected and written a few times a second, so that a slow disk costs no request. Bodies and keys are never logged.
// Threads: one (the server's); the destructor may run elsewhere.
//
//   DI_TRY(AccessLog log, AccessLog::open("-"));
//   log.add({.request_id = "req_1", .method = "GET", .path = "/health", .status = 200});
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

struct AccessLine {
  std::string request_id, key, remote, method, path;
  int status = 0;
  std::string outcome;  // complete, client_gone, slow_reader, timeout, stopped
  int64_t duration_us = 0, first_byte_us = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  int64_t prompt_tokens = -1, completion_tokens = -1;  // -1 = no answer of a model
  std::string finish;
  // Of the first answer that began: what the prefix cache did, and where its time went.
  std::optional<RequestReport> report;
  std::string cache_hint;  // the kind of what broke its prefix (host/prefix_lint.h)
};

class AccessLog {
 public:
  AccessLog() = default;  // writes nothing
  // A file is appended to; "-" is standard error; "off" or "" nothing.
  static Result<AccessLog> open(const std::string& path);
  AccessLog(AccessLog&& other) noexcept;
  AccessLog& operator=(AccessLog&& other) noexcept;
  ~AccessLog();

  bool enabled() const { return fd_ >= 0; }
  void add(const AccessLine& line);
  void flush();

 private:
  int fd_ = -1;
  bool owned_ = false;
  std::string buffer_;
};

}  // namespace deepinfer
