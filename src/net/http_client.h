// net/http_client.h - a blocking HTTP/1.1 client: http and https, keep-alive, proxies, pieces of a body as they come.
//
// Promise: send() returns within its time-outs; a body that ends early is an Error (kIo), never a short success.
// Redirects are answers like any other; who follows them decides which headers go along.
// Threads: one client, one thread at a time.
//
//   HttpClient client({.idle_timeout_us = 5'000'000});
//   DI_TRY(HttpReply reply, client.send({.url = "http://127.0.0.1:8080/v1/models"}));
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http.h"

namespace deepinfer {

struct Url {
  bool is_tls = false;
  std::string host;
  uint16_t port = 80;
  std::string target = "/";

  // "http://host:port" without the default port.
  std::string origin() const;
};
Result<Url> parse_url(std::string_view text);
// `location` as a redirect from `base` gives it: absolute, or from the root.
std::string resolve_url(const Url& base, std::string_view location);

struct HttpClientOptions {
  int64_t connect_timeout_us = 10'000'000;
  int64_t idle_timeout_us = 60'000'000;  // without a byte
  std::string proxy;                     // http://HOST:PORT, "" = none
  std::string ca_file;                   // PEM; "" = the system's
  bool verify = true;                    // certificates
  size_t max_body_bytes = size_t{256} << 20;
  int64_t total_timeout_us = 0;  // of one send(), 0 = none
  // The addresses of a host, connected to as they are; an Error goes to the caller of send(). Empty = the system's.
  std::function<Result<std::vector<std::string>>(const std::string& host)> resolve;
};

struct HttpCall {
  std::string method = "GET";
  std::string url;
  HttpHeaders headers;
  std::string body;
  // Takes the body of a 2xx answer piece by piece instead of HttpReply::body; false stops reading and closes the connection.
  std::function<bool(std::string_view)> sink;
  // Set by any thread: send() ends within a tenth of a second (kCancelled).
  const std::atomic<bool>* cancelled = nullptr;
};

struct HttpReply {
  int status = 0;
  HttpHeaders headers;
  std::string body;
  bool stopped = false;  // by the sink
};

class HttpClient {
 public:
  explicit HttpClient(HttpClientOptions options = {});
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  Result<HttpReply> send(const HttpCall& call);
  // Closes the kept connection.
  void disconnect();

 private:
  struct State;
  Result<HttpReply> exchange(const HttpCall& call);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer
