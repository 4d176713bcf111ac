// server/context.h - what the parts of the server share, and one request in their hands.
//
// Threads: the server's, except where a member says otherwise.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/profile.h"
#include "api/responses/store.h"
#include "api/small_bodies.h"
#include "base/clock.h"
#include "host/host.h"
#include "net/http_server.h"
#include "policy/quota.h"
#include "server/access_log.h"
#include "server/cache_log.h"
#include "server/engine_link.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/routes.h"
#include "server/settings.h"
#include "server/workers.h"

namespace deepinfer {

// One request from its dispatch to the line in the log.
struct Call {
  std::shared_ptr<HttpExchange> exchange;
  const Route* route = nullptr;
  std::vector<std::string> params;
  std::string request_id;
  std::string key;                          // name of the key's record
  std::string tenant;                       // of that key: whose cache it may use
  std::optional<RetentionClass> retention;  // what that key's requests leave is kept so long
  HttpHeaders headers;                      // of every answer: request id, CORS
  Dialect dialect = Dialect::kOpenAi;       // of errors
  AccessLine line;
  std::function<void()> on_gone;  // the answer will not be read

  const HttpRequest& request() const { return exchange->request(); }
  void respond(int status, std::string content_type, std::string body);
  void respond_json(int status, const Json& body) { respond(status, "application/json", body.dump()); }
  // In the form of the route's dialect, with what SDKs obey: whether and when to try again.
  void fail(const Error& error, int retry_after_seconds = 1);
  void fail(int status, const std::string& message, bool retry = false);
  Json error_json(const Error& error) const;
};
using CallPtr = std::shared_ptr<Call>;

struct ServerContext {
  explicit ServerContext(const ServeSettings& wanted);

  const ServeSettings& settings;
  std::string version;
  SteadyClock clock;
  ApiOptions api;
  std::vector<ModelCard> cards;  // the first is shown where one name is
  int64_t started = 0;           // seconds since 1970
  std::string id_prefix;         // of this process
  uint64_t num_ids = 0;
  Metrics metrics;
  AccessLog log;
  CacheLog cache_log;
  KeyRing keys;
  std::map<std::string, Quota> quotas;  // by the name of a key
  EngineLink link;
  HttpServer* http = nullptr;
  Host* host = nullptr;  // null while the model loads
  bool draining = false;
  std::unique_ptr<ResponseStore> responses;
  size_t body_bytes_at_work = 0;  // of bodies that wait for the workers or are in their hands
  // Pictures take seconds where other bodies take milliseconds, and links are waited for: they have workers of their own.
  Workers workers, picture_workers;

  // `prefix`, "chatcmpl-" and the like, with something no other answer has behind it.
  std::string new_id(std::string_view prefix);
  // The form of errors below this path.
  Dialect error_dialect(std::string_view path) const;
  size_t body_limit() const { return static_cast<size_t>(settings.max_body_mb) << 20; }
  // Of the engine's clock: the setting's, or sooner when the header x-request-timeout (seconds) asks for it; 0 = none.
  int64_t deadline_us(const HttpRequest& request) const;
};

// The body decompressed; an Error says what is wrong with it, `status` what to answer (400, 413, 415).
Result<std::string> request_body(const HttpRequest& request, size_t limit, int& status);

// x-should-retry, and where a retry may help retry-after and retry-after-ms: the SDKs of OpenAI and Anthropic obey them.
void set_retry_headers(HttpHeaders& headers, bool retry, int after_seconds = 1);

// An error in the form of a dialect.
Json dialect_error(Dialect dialect, int status, const std::string& message, const std::string& request_id);

int64_t now_seconds();

}  // namespace deepinfer
