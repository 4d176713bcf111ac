#include "server/context.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include <fmt/format.h>

#include "api/errors.h"
#include "api/messages/response.h"
#include "net/compression.h"

namespace deepinfer {

void Call::respond(int status, std::string content_type, std::string body) {
  HttpResponse response{status, headers, std::move(body)};
  response.headers.set("content-type", std::move(content_type));
  exchange->respond(std::move(response));
}

namespace {

// One picture in work must not hold up everybody's large bodies; links are waited for besides.
constexpr int kWorkers = 2, kFetchingWorkers = 8;

}  // namespace

void Call::fail(const Error& error) {
  const WireStatus status = wire_status(error.code);
  set_retry_headers(headers, status.retry);
  const Dialect dialect = dialect_of(request().path);
  respond_json(status.http,
               dialect == Dialect::kOpenAi ? error_body(error) : dialect_error(dialect, status.http, error.message, request_id));
}

void Call::fail(int status, const std::string& message) {
  set_retry_headers(headers, false);
  respond_json(status, dialect_error(dialect_of(request().path), status, message, request_id));
}

ServerContext::ServerContext(const ServeSettings& wanted)
    : settings(wanted), workers(wanted.fetch_images ? kFetchingWorkers : kWorkers) {}

std::string ServerContext::new_id(std::string_view prefix) { return fmt::format("{}{}{:06x}", prefix, id_prefix, ++num_ids); }

void set_retry_headers(HttpHeaders& headers, bool retry, int after_seconds) {
  headers.set("x-should-retry", retry ? "true" : "false");
  if (!retry) return;
  headers.set("retry-after", std::to_string(after_seconds));
  headers.set("retry-after-ms", std::to_string(after_seconds * 1000));
}

Json dialect_error(Dialect dialect, int status, const std::string& message, const std::string& request_id) {
  if (dialect == Dialect::kOpenAi) return http_error_body(status, message);
  Json body = messages_error_body(status, message);
  body.set("request_id", request_id);
  return body;
}

int64_t ServerContext::deadline_us(const HttpRequest& request) const {
  double seconds = static_cast<double>(settings.request_timeout);
  const std::string_view header = request.headers.get("x-request-timeout");
  double asked = 0;
  const auto [end, status] = std::from_chars(header.data(), header.data() + header.size(), asked);
  if (status == std::errc() && end == header.data() + header.size() && asked > 0 && (seconds <= 0 || asked < seconds))
    seconds = asked;
  return seconds > 0 ? clock.now_us() + static_cast<int64_t>(std::min(seconds, 1e9) * 1e6) : 0;
}

Result<std::string> request_body(const HttpRequest& request, size_t limit, int& status) {
  Result<std::string> body = decoded_body(request.headers.get("content-encoding"), request.body, limit);
  status = 400;
  if (!body && body.error().code == ErrorCode::kTooLarge) status = 413;
  if (!body && body.error().code == ErrorCode::kUnsupported) status = 415;
  return body;
}

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace deepinfer
