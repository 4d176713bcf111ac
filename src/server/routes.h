// server/routes.h - the one table of what the server offers: dispatch, key checks, 405 answers and /openapi.json read it.
//
// Threads: const.
//
//   const RouteMatch match = find_route("GET", "/v1/models/tiny");
//   if (!match.route) ...            // match.allowed is empty: 404, else 405
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

enum class RouteId {
  kConsole,
  kLive,
  kReady,
  kMetrics,
  kScale,
  kOpenApi,
  kVersion,
  kModels,
  kModel,
  kChat,
  kCompletion,
  kMessages,
  kCountTokens,
  kCreateResponse,
  kGetResponse,
  kDeleteResponse,
  kCancelResponse,
  kInputItems,
  kCountInput,
  kTokenize,
  kDetokenize,
  kCacheWhy,
  kUploadFile,
  kListFiles,
  kGetFile,
  kDeleteFile,
  kFileContent,
  kCreateBatch,
  kListBatches,
  kGetBatch,
  kCancelBatch,
};

// Answers of the model: what quotas count.
constexpr bool generates(RouteId id) {
  return id == RouteId::kChat || id == RouteId::kCompletion || id == RouteId::kMessages || id == RouteId::kCreateResponse;
}

enum class RouteAccess { kOpen, kKey };
enum class RouteMedia { kNone, kJson, kForm };

struct Route {
  RouteId id;
  std::string_view method, path;  // {x} stands for one segment
  RouteAccess access = RouteAccess::kKey;
  RouteMedia media = RouteMedia::kNone;  // of the request's body
  bool needs_model = false;              // 503 while it loads
  std::string_view summary;
  // Names of schemas (server/openapi.cc) of request and answer; "" = none.
  std::string_view request_schema, answer_schema;
  std::string_view answer_media = "application/json";
};

std::span<const Route> all_routes();

struct RouteMatch {
  const Route* route = nullptr;
  std::vector<std::string> params;  // decoded, in order
  std::string allowed;              // methods of the path when the method is wrong: "GET, HEAD, OPTIONS"
};
// Other names of a path lead to the same route: /models, /beta/models and /anthropic/v1/models to /v1/models.
RouteMatch find_route(std::string_view method, std::string_view path);

// Whose form the errors of a path have, that of unknown paths below it included.
enum class Dialect { kOpenAi, kAnthropic };
Dialect dialect_of(std::string_view path);

}  // namespace deepinfer
