// net/http.h - what an HTTP message is, without sockets.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

// Headers in the order they came; names compare without case.
class HttpHeaders {
 public:
  using Entry = std::pair<std::string, std::string>;

  HttpHeaders() = default;
  HttpHeaders(std::initializer_list<Entry> entries) : entries_(entries) {}

  void add(std::string name, std::string value) { entries_.emplace_back(std::move(name), std::move(value)); }
  // Replaces every entry of that name.
  void set(std::string name, std::string value);
  // The first of that name, or "".
  std::string_view get(std::string_view name) const;
  size_t count(std::string_view name) const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

bool equal_ignoring_case(std::string_view a, std::string_view b);

struct HttpRequest {
  std::string method;
  std::string target;  // as sent
  std::string path;    // of the target, before '?', not decoded
  std::string query;   // behind '?'
  HttpHeaders headers;
  std::string body;    // as sent; net/compression.h decodes it
  std::string remote;  // address of the peer
  bool has_body = false;
  bool keep_alive = true;
  int version_minor = 1;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;
  std::string body;

  static HttpResponse json(int status, std::string body) {
    return {status, {{"content-type", "application/json"}}, std::move(body)};
  }
  static HttpResponse text(int status, std::string body) {
    return {status, {{"content-type", "text/plain; charset=utf-8"}}, std::move(body)};
  }
};

// The reason phrase of a status.
const char* http_reason(int status);

// %XX decoded; an incomplete one stays as it is.
std::string percent_decoded(std::string_view text);

// What a server accepts of one request.
struct HttpLimits {
  size_t header_bytes = size_t{32} << 10;  // request line and headers
  size_t num_headers = 100;
  size_t target_bytes = size_t{8} << 10;
  size_t body_bytes = size_t{48} << 20;
};

// A request that is refused by its bytes alone.
struct HttpFault {
  int status = 0;
  std::string message;
};

}  // namespace deepinfer
