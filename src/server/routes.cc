#include "server/routes.h"

#include <array>

#include "net/http.h"

namespace deepinfer {

namespace {

constexpr auto kOpen = RouteAccess::kOpen;
constexpr auto kKey = RouteAccess::kKey;
constexpr auto kNone = RouteMedia::kNone;
constexpr auto kJson = RouteMedia::kJson;
constexpr auto kForm = RouteMedia::kForm;

constexpr std::array kRoutes = std::to_array<Route>({
    {RouteId::kConsole, "GET", "/", kOpen, kNone, false, "The chat page", "", "", "text/html"},
    {RouteId::kReady, "GET", "/health", kOpen, kNone, false, "200 when answers can be expected", "", "Health"},
    {RouteId::kLive, "GET", "/health/live", kOpen, kNone, false, "200 while the process runs", "", "Health"},
    {RouteId::kReady, "GET", "/health/ready", kOpen, kNone, false, "200 when steps of the engine finish", "", "Health"},
    {RouteId::kScale, "GET", "/scale", kKey, kNone, true, "How busy it is, for whoever starts and stops workers", "", "Object"},
    {RouteId::kMetrics, "GET", "/metrics", kKey, kNone, false, "Metrics in the text form of Prometheus", "", "", "text/plain"},
    {RouteId::kOpenApi, "GET", "/openapi.json", kKey, kNone, false, "This description", "", "Object"},
    {RouteId::kVersion, "GET", "/version", kKey, kNone, false, "Version of the program", "", "Version"},
    {RouteId::kModels, "GET", "/v1/models", kKey, kNone, true, "The models this server answers to", "", "ModelList"},
    {RouteId::kModel, "GET", "/v1/models/{model}", kKey, kNone, true, "One model", "", "Model"},
    {RouteId::kChat, "POST", "/v1/chat/completions", kKey, kJson, true, "Answer a conversation", "ChatRequest", "ChatCompletion"},
    {RouteId::kCompletion, "POST", "/v1/completions", kKey, kJson, true, "Continue a text", "CompletionRequest", "Completion"},
    {RouteId::kMessages, "POST", "/v1/messages", kKey, kJson, true, "Answer a conversation in the form of Anthropic",
     "MessagesRequest", "MessagesAnswer"},
    {RouteId::kCountTokens, "POST", "/v1/messages/count_tokens", kKey, kJson, true, "How many tokens the prompt of a message has",
     "MessagesRequest", "TokenCount"},
    {RouteId::kCreateResponse, "POST", "/v1/responses", kKey, kJson, true, "Answer in the Responses form", "ResponsesRequest",
     "Response"},
    {RouteId::kGetResponse, "GET", "/v1/responses/{response_id}", kKey, kNone, false, "A kept response", "", "Response"},
    {RouteId::kDeleteResponse, "DELETE", "/v1/responses/{response_id}", kKey, kNone, false, "Forget a response", "",
     "ResponseDeleted"},
    {RouteId::kCancelResponse, "POST", "/v1/responses/{response_id}/cancel", kKey, kNone, false, "Stop a background response", "",
     "Response"},
    {RouteId::kInputItems, "GET", "/v1/responses/{response_id}/input_items", kKey, kNone, false, "What a kept response was asked",
     "", "ItemList"},
    {RouteId::kCountInput, "POST", "/v1/responses/input_tokens", kKey, kJson, true, "How many tokens the input of a response has",
     "ResponsesRequest", "InputTokens"},
    {RouteId::kTokenize, "POST", "/tokenize", kKey, kJson, true, "Text to token ids", "TokenizeRequest", "Tokens"},
    {RouteId::kDetokenize, "POST", "/detokenize", kKey, kJson, true, "Token ids to text", "DetokenizeRequest", "Text"},
    {RouteId::kCacheWhy, "GET", "/v1/cache/why/{request_id}", kKey, kNone, true, "Why no more of a prompt was cached", "",
     "CacheWhy"},
    {RouteId::kUploadFile, "POST", "/v1/files", kKey, kForm, false, "Upload a batch file", "FileUpload", "File"},
    {RouteId::kListFiles, "GET", "/v1/files", kKey, kNone, false, "Uploaded files", "", "FileList"},
    {RouteId::kGetFile, "GET", "/v1/files/{file_id}", kKey, kNone, false, "One file", "", "File"},
    {RouteId::kDeleteFile, "DELETE", "/v1/files/{file_id}", kKey, kNone, false, "Delete a file", "", "FileDeleted"},
    {RouteId::kFileContent, "GET", "/v1/files/{file_id}/content", kKey, kNone, false, "Content of a file", "", "",
     "application/jsonl"},
    {RouteId::kCreateBatch, "POST", "/v1/batches", kKey, kJson, true, "Run a file of requests", "BatchRequest", "Batch"},
    {RouteId::kListBatches, "GET", "/v1/batches", kKey, kNone, false, "Batches", "", "BatchList"},
    {RouteId::kGetBatch, "GET", "/v1/batches/{batch_id}", kKey, kNone, false, "One batch", "", "Batch"},
    {RouteId::kCancelBatch, "POST", "/v1/batches/{batch_id}/cancel", kKey, kNone, false, "Stop a batch", "", "Batch"},
});

std::string_view next_segment(std::string_view& path) {
  const size_t slash = path.find('/');
  const std::string_view segment = path.substr(0, slash);
  path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  return segment;
}

bool matches(std::string_view pattern, std::string_view path, std::vector<std::string>& params) {
  params.clear();
  if (pattern.find('{') == std::string_view::npos) return pattern == path;
  if (!path.starts_with('/') || path.ends_with('/')) return false;
  pattern.remove_prefix(1);
  path.remove_prefix(1);
  while (!pattern.empty()) {
    const std::string_view wanted = next_segment(pattern);
    if (path.empty()) return false;
    // A model's name may hold slashes: the last parameter of a pattern takes them.
    const bool takes_rest = wanted == "{model}" && pattern.empty();
    const std::string_view got = takes_rest ? std::exchange(path, {}) : next_segment(path);
    if (wanted.starts_with('{')) {
      if (got.empty()) return false;
      params.push_back(percent_decoded(got));
    } else if (wanted != got) {
      return false;
    }
  }
  return path.empty();
}

bool is_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// Paths of the official service: its wires without /v1 or with /beta instead of it, and those of Anthropic below a folder.
// Empty: `path` is none of them.
std::string path_of_alias(std::string_view path) {
  constexpr std::string_view kAnthropic = "/anthropic/v1", kBeta = "/beta";
  const bool is_anthropic = is_below(path, kAnthropic);
  if (is_anthropic) path.remove_prefix(kAnthropic.size());
  if (!is_anthropic && is_below(path, kBeta)) path.remove_prefix(kBeta.size());
  const bool is_alias = is_anthropic ? is_below(path, "/messages") || is_below(path, "/models")
                                     : is_below(path, "/chat/completions") || is_below(path, "/completions") ||
                                           is_below(path, "/models") || is_below(path, "/responses");
  return is_alias ? "/v1" + std::string(path) : std::string();
}

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  const std::string other = path_of_alias(path);
  if (!other.empty()) path = other;
  if (method == "HEAD") method = "GET";
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, path, match.params)) continue;
    if (route.method == method) {
      match.route = &route;
      return match;
    }
    allowed += std::string(allowed.empty() ? "" : ", ") + std::string(route.method);
    if (route.method == "GET") allowed += ", HEAD";
  }
  if (!allowed.empty()) match.allowed = allowed + ", OPTIONS";
  match.params.clear();
  return match;
}

Dialect dialect_of(std::string_view path) {
  return path.starts_with("/v1/messages") || path.starts_with("/anthropic/") ? Dialect::kAnthropic : Dialect::kOpenAi;
}

}  // namespace deepinfer
