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

// One body in work must not hold up all others.
constexpr int kWorkers = 2, kPictureWorkers = 2, kFetchingWorkers = 8;

}  // namespace

void Call::fail(const Error& error, int retry_after_seconds) {
  const WireStatus status = wire_status(error.code);
  set_retry_headers(headers, status.retry, retry_after_seconds);
  respond_json(status.http, error_json(error));
}

void Call::fail(int status, const std::string& message, bool retry) {
  set_retry_headers(headers, retry);
  respond_json(status, dialect_error(dialect, status, message, request_id));
}

Json Call::error_json(const Error& error) const {
  if (dialect == Dialect::kOpenAi) return error_body(error);
  return dialect_error(dialect, wire_status(error.code).http, error.message, request_id);
}

ServerContext::ServerContext(const ServeSettings& wanted)
    : settings(wanted), workers(kWorkers), picture_workers(wanted.fetch_images ? kFetchingWorkers : kPictureWorkers) {}

Dialect ServerContext::error_dialect(std::string_view path) const {
  return profile_rules(api.profile).messages_errors ? dialect_of(path) : Dialect::kOpenAi;
}

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
