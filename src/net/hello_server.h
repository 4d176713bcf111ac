// net/hello_server.h - the plainest Beast server: the neighbour `bench serve` measures beside ours.
//
// Reads a request with Beast's own parser and body, answers a fixed text, keeps the connection; no limits, no deadlines.
// Threads: one of its own.
//
//   DI_TRY(auto hello, HelloServer::start(600));
//   get("http://127.0.0.1", hello->port());
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"

namespace deepinfer {

class HelloServer {
 public:
  static Result<std::unique_ptr<HelloServer>> start(size_t answer_bytes);
  virtual ~HelloServer() = default;
  virtual uint16_t port() const = 0;
};

}  // namespace deepinfer
