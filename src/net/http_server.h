// net/http_server.h - an HTTP/1.1 server: connections, requests, whole and streamed answers, TLS, limits, drain.
//
// It knows nothing of what is served: a handler gets each request as an HttpExchange and answers it now or later, whole or
// piece by piece. Everything a peer can do slowly has a deadline, everything it can send or not read has a limit.
// Promise: each exchange ends exactly once (HttpExchange::on_end), whoever goes first; a client that vanishes is noticed
// while its answer is computed; a handler that never answers holds a connection, not the server.
// Threads: one thread runs all connections and all calls of the handler. An HttpExchange is used on that thread only; post()
// brings other threads there. start(), post(), drain(), stop(), stats() from any thread, but not stop() from the handler.
//
//   class Hello : public HttpHandler {
//     void handle(std::shared_ptr<HttpExchange> exchange) override { exchange->respond(HttpResponse::text(200, "hello")); }
//   };
//   DI_TRY(auto server, HttpServer::open({.port = 8080}, hello));   // bound; fails when the port is in use
//   server->start();
//   ...
//   server->drain(30'000'000);    // finish what runs
//   server->stop();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"

namespace deepinfer {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0 = any free one
  HttpLimits limits;
  int max_connections = 4096;
  int64_t header_timeout_us = 10'000'000;  // from the first byte of a request to the end of its headers
  int64_t idle_timeout_us = 75'000'000;    // between requests
  // A body must come, and an answer must be read, at this pace after the first seconds.
  int64_t grace_us = 10'000'000;
  int64_t min_bytes_per_second = 512;
  int64_t write_timeout_us = 30'000'000;          // a peer that takes no byte for so long is gone
  size_t max_unsent_bytes = size_t{1} << 20;      // of a streamed answer; a slower reader is closed
  size_t max_buffered_bytes = size_t{512} << 20;  // of all unfinished bodies together
  std::string tls_certificate, tls_key;           // PEM files; both or none
};

enum class HttpOutcome { kComplete, kClientGone, kSlowReader, kTimeout, kStopped };
const char* http_outcome_name(HttpOutcome outcome);

// How an exchange ended, for logs and counters.
struct HttpEnd {
  HttpOutcome outcome = HttpOutcome::kComplete;
  int status = 0;             // 0 = no answer began
  uint64_t bytes_sent = 0;    // of the answer, headers included
  int64_t begin_us = 0;       // steady clock: request complete
  int64_t first_byte_us = 0;  // answer began; 0 = never
  int64_t end_us = 0;
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual HttpRequest& request() = 0;
  virtual int64_t begin_us() const = 0;
  // Called once, when the answer has been handed to the system or can no longer be. Set it before answering.
  virtual void on_end(std::function<void(const HttpEnd&)> callback) = 0;
  // The peer is there and the answer is not complete. Answers to a closed exchange go nowhere.
  virtual bool is_open() const = 0;

  // The whole answer.
  virtual void respond(HttpResponse response) = 0;
  // Or piece by piece; what is written in one turn leaves in one packet.
  virtual void begin_stream(int status, const HttpHeaders& headers) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish_stream() = 0;
  virtual bool has_begun() const = 0;
  // Closes the connection: after the headers are out an error has no other way.
  virtual void abandon() = 0;
};

// What is known when the headers are there and the body is not.
struct HttpAdmission {
  std::optional<HttpResponse> refusal;  // answered at once; the body is not kept
  size_t body_limit = 0;                // 0 = the server's
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  virtual HttpAdmission admit(const HttpRequest&) { return {}; }
  virtual void handle(std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to bytes that are no request; `head` is null when not even that was read.
  virtual HttpResponse refusal(const HttpFault& fault, const HttpRequest* head) {
    (void)head;
    return HttpResponse::text(fault.status, fault.message + "\n");
  }
  // A request that never reached handle() gets `response`. `head` is null when the bytes had none.
  virtual void refused(const HttpRequest* head, const HttpResponse& response, std::string_view remote) {
    (void)head, (void)response, (void)remote;
  }
  // A few times a second.
  virtual void tick() {}
};

struct HttpServerStats {
  int64_t connections = 0;  // open now
  int64_t accepted = 0;
  int64_t turned_away = 0;  // beyond max_connections
  int64_t exchanges = 0;    // open now
  int64_t bytes_in = 0, bytes_out = 0;
};

class HttpServer {
 public:
  // Binds and listens. `handler` must outlive the server.
  static Result<std::unique_ptr<HttpServer>> open(const HttpServerOptions& options, HttpHandler& handler);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  virtual void start() = 0;
  // Runs `work` on the server's thread, soon and in order.
  virtual void post(std::function<void()> work) = 0;
  // Takes no new connections, closes idle ones, lets answers finish; what is left after `limit_us` is cut.
  virtual void drain(int64_t limit_us) = 0;
  // After drain(): nothing is open any more.
  virtual bool is_drained() const = 0;
  // Cuts everything and joins the thread. Idempotent.
  virtual void stop() = 0;
  virtual HttpServerStats stats() const = 0;
};

}  // namespace deepinfer
