#include "api/errors.h"

namespace deepinfer {

WireStatus wire_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return {400, "invalid_request_error", false};
    case ErrorCode::kCorrupt: return {400, "invalid_request_error", false};
    case ErrorCode::kTooLarge: return {400, "invalid_request_error", false};
    case ErrorCode::kUnsupported: return {400, "invalid_request_error", false};
    case ErrorCode::kNotFound: return {404, "invalid_request_error", false};
    case ErrorCode::kPermission: return {403, "permission_error", false};
    case ErrorCode::kExhausted: return {429, "rate_limit_error", true};
    case ErrorCode::kUnavailable: return {503, "overloaded_error", true};
    case ErrorCode::kDeadline: return {504, "timeout_error", true};
    case ErrorCode::kCancelled: return {499, "cancelled_error", false};
    case ErrorCode::kIo: return {500, "internal_error", true};
    case ErrorCode::kInternal: return {500, "internal_error", false};
  }
  return {};
}

namespace {

Json envelope(const std::string& message, const char* type, const char* code) {
  return Json::object({{"error", Json::object({{"message", message}, {"type", type}, {"param", Json()}, {"code", code}})}});
}

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 408:
    case 504: return "timeout_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "internal_error";
  }
}

}  // namespace

Json error_body(const Error& error) {
  const WireStatus status = wire_status(error.code);
  return envelope(error.message, status.type, status.http < 500 ? "invalid_request_error" : status.type);
}

Json http_error_body(int status, const std::string& message) {
  return envelope(message, type_of(status), status < 500 ? "invalid_request_error" : type_of(status));
}

}  // namespace deepinfer
