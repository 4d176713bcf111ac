#include "server/gate.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "api/errors.h"

namespace deepinfer {

namespace {

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

// "application/json; charset=utf-8" -> "application/json"
std::string media_type(std::string_view header) {
  std::string out(header.substr(0, header.find(';')));
  while (!out.empty() && out.back() == ' ') out.pop_back();
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_local_origin(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    const std::string_view place = origin.substr(scheme.size());
    for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
      if (place == host || (place.starts_with(host) && place.substr(host.size()).starts_with(':'))) return true;
    }
  }
  return false;
}

bool origin_allowed(const std::string& rule, std::string_view origin) {
  if (origin.empty() || rule == "off") return false;
  if (rule == "*") return true;
  if (rule == "local") return is_local_origin(origin);
  for (size_t at = 0; at < rule.size();) {
    const size_t comma = std::min(rule.find(',', at), rule.size());
    if (std::string_view(rule).substr(at, comma - at) == origin) return true;
    at = comma + 1;
  }
  return false;
}

// What a key is shown as in an error: its end, never more than half of it.
std::string masked(const std::optional<std::string>& key) {
  if (!key) return "none was given";
  return "****" + key->substr(key->size() - std::min<size_t>(4, key->size() / 2)) + " is invalid";
}

}  // namespace

Gate::Identity Gate::identify(const HttpRequest& request) const {
  if (!context_.keys.required()) return {"", "", true, {}, {}};
  const std::optional<std::string> key = presented_key(request.headers);
  const KeyRecord* record = key ? context_.keys.find(*key) : nullptr;
  return record ? Identity{record->name, record->tenant, true, record->retention, record->limits} : Identity{};
}

std::string Gate::request_id_of(const HttpRequest& request) {
  const std::string_view given = request.headers.get("x-request-id");
  return is_request_id(given) ? std::string(given) : context_.new_id("req-");
}

HttpHeaders Gate::common_headers(const HttpRequest& request, const std::string& request_id) const {
  HttpHeaders headers;
  headers.add("x-request-id", request_id);
  if (dialect_of(request.path) == Dialect::kAnthropic) headers.add("request-id", request_id);
  const std::string_view origin = request.headers.get("origin");
  if (origin_allowed(context_.settings.cors, origin)) {
    headers.add("access-control-allow-origin", std::string(origin));
    headers.add("access-control-expose-headers", "x-request-id, request-id, retry-after");
    headers.add("vary", "origin");
  }
  return headers;
}

HttpResponse Gate::error_response(const HttpRequest& request, int status, const std::string& message) {
  const std::string id = request_id_of(request);
  HttpResponse response{status, common_headers(request, id),
                        dialect_error(context_.error_dialect(request.path), status, message, id).dump()};
  response.headers.set("content-type", "application/json");
  set_retry_headers(response.headers, false);
  return response;
}

HttpResponse Gate::malformed(const HttpFault& fault, const HttpRequest* head) {
  const std::string_view path = head ? std::string_view(head->path) : std::string_view();
  const Dialect dialect = context_.error_dialect(path);
  const std::string id = context_.new_id("req-");
  HttpResponse response = HttpResponse::json(fault.status, dialect_error(dialect, fault.status, fault.message, id).dump());
  response.headers.add("x-request-id", id);
  if (dialect_of(path) == Dialect::kAnthropic) response.headers.add("request-id", id);
  set_retry_headers(response.headers, fault.status == 503);
  return response;
}

std::optional<HttpResponse> Gate::refuse_stranger(const HttpRequest& request, const RouteMatch& match) {
  const bool is_open = match.route && match.route->access == RouteAccess::kOpen;
  if (is_open || identify(request).known) return std::nullopt;
  HttpResponse response =
      error_response(request, 401, "Authentication Fails, Your api key: " + masked(presented_key(request.headers)));
  response.headers.add("www-authenticate", "Bearer");
  return response;
}

std::optional<HttpResponse> Gate::refuse_spender(const HttpRequest& request, const RouteMatch& match) {
  if (!generates(match.route->id)) return std::nullopt;
  const Identity who = identify(request);
  const int64_t seconds = context_.quotas[who.key].wait_s(who.limits, context_.clock.now_us());
  if (seconds == 0) return std::nullopt;
  HttpResponse response = error_response(
      request, 429,
      fmt::format("the limit of this key is reached (a minute: {} requests, {} tokens; 0 = any): try again in {} s",
                  who.limits.requests, who.limits.tokens, seconds));
  set_retry_headers(response.headers, true, static_cast<int>(seconds));
  return response;
}

std::optional<HttpResponse> Gate::refuse(const HttpRequest& request, const RouteMatch& match) {
  if (auto refusal = refuse_stranger(request, match)) return refusal;
  if (!match.route && match.allowed.empty())
    return error_response(
        request, 404,
        fmt::format("{} {}: there is nothing here; see /openapi.json", request.method, request.path.substr(0, 200)));
  if (!match.route) {
    HttpResponse response = error_response(
        request, 405,
        fmt::format("{} is not a method of {}; allowed: {}", request.method.substr(0, 20), request.path, match.allowed));
    response.headers.add("allow", match.allowed);
    return response;
  }
  const std::string media = media_type(request.headers.get("content-type"));
  const char* wanted = match.route->media == RouteMedia::kJson   ? "application/json"
                       : match.route->media == RouteMedia::kForm ? "multipart/form-data"
                                                                 : "";
  if (*wanted && media != wanted && !(media.empty() && match.route->media == RouteMedia::kJson)) {
    return error_response(request, 415, fmt::format("Content-Type must be {}, not '{}'", wanted, media.substr(0, 60)));
  }
  if (match.route->needs_model && (!context_.host || context_.draining)) {
    HttpResponse response = error_response(
        request, 503,
        context_.draining ? "the server is stopping: send the request elsewhere" : "the model is loading: try again soon");
    set_retry_headers(response.headers, true, context_.draining ? 30 : 2);
    return response;
  }
  return refuse_spender(request, match);
}

HttpResponse Gate::preflight(const HttpRequest& request) const {
  HttpResponse response{204, {}, ""};
  const std::string_view origin = request.headers.get("origin");
  if (!origin_allowed(context_.settings.cors, origin)) return response;
  response.headers.add("access-control-allow-origin", std::string(origin));
  response.headers.add("access-control-allow-methods", "GET, POST, DELETE, OPTIONS");
  const std::string_view wanted = request.headers.get("access-control-request-headers");
  response.headers.add("access-control-allow-headers", wanted.empty() ? "authorization, content-type" : std::string(wanted));
  response.headers.add("access-control-max-age", "600");
  response.headers.add("vary", "origin, access-control-request-headers");
  return response;
}

}  // namespace deepinfer
