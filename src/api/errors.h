// api/errors.h - how an error looks on the wire.
//
// One table maps each ErrorCode to an HTTP status, to a type of the wire's envelope and to retry-or-not.
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "base/result.h"

namespace deepinfer {

struct WireStatus {
  int http = 500;
  const char* type = "internal_error";
  bool retry = false;  // the same request may work later
};

WireStatus wire_status(ErrorCode code);

// {"error": {"message", "type", "param": null, "code"}}
Json error_body(const Error& error);
// The same for an HTTP status that no ErrorCode stands for: 401, 404 of a route, 405, 408, 413, 415, 431 ...
Json http_error_body(int status, const std::string& message);

}  // namespace deepinfer
