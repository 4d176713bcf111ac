#include "server/service.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "net/link_fetcher.h"
#include "server/openapi.h"
#include "server/response_routes.h"
#include "server/small_routes.h"

namespace deepinfer {

namespace {

int64_t microseconds(float seconds) { return static_cast<int64_t>(static_cast<double>(seconds) * 1e6); }

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) names.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return names;
}

// "scripted:some/folder/x.jsonl" -> "scripted:x.jsonl": paths of this machine are nobody's business.
std::string short_name(const std::string& name) {
  constexpr std::string_view kScripted = "scripted:";
  if (!name.starts_with(kScripted)) return name;
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : std::string(kScripted) + name.substr(slash + 1);
}

std::string random_prefix() {
  uint64_t value = 0;
  if (getentropy(&value, sizeof(value)) != 0) value = static_cast<uint64_t>(SteadyClock().now_us());
  return fmt::format("{:016x}", value);
}

HttpServerOptions http_options(const ServeSettings& settings) {
  HttpServerOptions options;
  options.host = settings.address;
  options.port = static_cast<uint16_t>(settings.port);
  options.limits.body_bytes = static_cast<size_t>(std::max(settings.max_body_mb, settings.max_file_mb)) << 20;
  options.max_connections = settings.max_connections;
  options.header_timeout_us = microseconds(settings.header_timeout);
  options.grace_us = microseconds(settings.header_timeout);
  options.idle_timeout_us = microseconds(settings.idle_timeout);
  options.write_timeout_us = microseconds(settings.write_timeout);
  options.max_unsent_bytes = static_cast<size_t>(settings.max_unsent_kb) << 10;
  options.tls_certificate = settings.tls_certificate;
  options.tls_key = settings.tls_key;
  return options;
}

void apply_request_settings(const ServeSettings& settings, ApiOptions& api) {
  api.default_thinking = settings.thinking == "on";
  api.reject_missing_reasoning = settings.missing_reasoning == "refuse";
  api.max_tokens_thinking = settings.max_tokens_thinking;
  api.max_tokens_plain = settings.max_tokens_plain;
  api.messages_drops_web_search = settings.web_search == "drop";
  api.messages_rejects_web_search = api.responses_rejects_web_search = settings.web_search == "refuse";
}

}  // namespace

Server::Service::Service(const ServeSettings& settings, const ServerInfo& info)
    : settings_(settings),
      context_(settings_),
      gate_(context_),
      answers_(context_),
      state_folder_(info.state_folder),
      cache_folder_(info.cache_folder) {
  context_.version = info.version;
}

Server::Service::~Service() { stop(); }

Status Server::Service::open() {
  context_.started = now_seconds();
  context_.id_prefix = random_prefix();
  DI_TRY(context_.api.profile, parse_profile(settings_.profile));
  apply_request_settings(settings_, context_.api);
  context_.responses =
      std::make_unique<ResponseStore>(ResponseStoreLimits{.max_bytes = static_cast<size_t>(settings_.max_stored_mb) << 20});
  if (!settings_.keys.empty()) {
    DI_TRY(context_.keys, KeyRing::open(settings_.keys));
  }
  for (const std::string& origin : split_names(settings_.cors)) {
    if (origin != "local" && origin != "off" && origin != "*" && origin.find("://") == std::string::npos)
      return invalid_argument(fmt::format("--cors {}: local, off, * or origins like https://example.org", settings_.cors));
  }
  DI_TRY(context_.log, AccessLog::open(settings_.access_log));
  DI_TRY(http_, HttpServer::open(http_options(settings_), *this));
  context_.http = http_.get();
  context_.link.connect([this](std::function<void()> work) { http_->post(std::move(work)); });
  batches_ = std::make_unique<BatchService>(context_, data_folder());
  if (!settings_.data.empty()) DI_CHECK_OK(batches_->make_folders());
  http_->start();
  return {};
}

std::string Server::Service::data_folder() const {
  return !settings_.data.empty() ? settings_.data : state_folder_.empty() ? "" : state_folder_ + "/serve";
}

Status Server::Service::load(const LoadProgress& progress, const HostOpener& opener) {
  HostOptions options;
  options.progress = progress;
  options.max_batch = settings_.batch;
  options.queue_limit = settings_.queue;
  options.clock = &context_.clock;
  options.state_folder = data_folder();
  options.store_folder = cache_folder_.empty() ? "" : cache_folder_ + "/kv";
  options.step_end = [this] { context_.link.step_end(); };
  if (settings_.fetch_images) options.fetch_image = [this](const std::string& url, size_t max) { return fetch_image(url, max); };
  DI_TRY(host_, opener ? opener(settings_.host, std::move(options)) : Host::open(settings_.host, std::move(options)));
  std::vector<std::string> names = split_names(settings_.served_model_name);
  if (names.empty()) names = {short_name(host_->facts().model)};
  ApiOptions api = context_.api;
  api.models = names;
  api.messages_takes_claude = true;
  std::vector<ModelCard> cards;
  for (const std::string& name : names) {
    cards.push_back({name, short_name(host_->facts().model), context_.started, host_->facts().context,
                     host_->facts().shape.vision.has_value()});
  }
  // From here on the server's thread owns them.
  http_->post([this, api, cards] {
    context_.api = api;
    context_.cards = cards;
    context_.host = host_.get();
    batches_->resume();
  });
  return {};
}

Result<std::string> Server::Service::fetch_image(const std::string& url, size_t max_bytes) {
  Result<std::string> body = LinkFetcher({}).fetch(url, max_bytes, &stopped_);
  if (body) return body;
  // The client learns that it failed, the operator why.
  http_->post([this, message = body.error().message] {
    AccessLine line;
    line.outcome = "image not fetched: " + message;
    context_.log.add(line);
  });
  return body;
}

std::string Server::Service::url() const {
  const std::string host = settings_.address == "0.0.0.0" || settings_.address == "::" ? "localhost" : settings_.address;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", settings_.tls_certificate.empty() ? "http" : "https", is_v6 ? "[" : "", host,
                     is_v6 ? "]" : "", http_->port());
}

Status Server::Service::readiness() {
  const Readiness now = readiness_of(host_.get(), false, microseconds(settings_.stall_limit));
  return now.ready ? Status() : Status(Error{ErrorCode::kUnavailable, now.reason});
}

void Server::Service::drain() {
  http_->post([this] { context_.draining = true; });
  batches_->stop();
  http_->drain(microseconds(settings_.drain_timeout));
}

void Server::Service::stop() {
  if (!http_ || stopped_.exchange(true)) return;
  batches_->stop();
  http_->stop();
  if (host_ && !host_->is_local()) host_->remote().leave();
  // Plans that are still being made read the model; what they post goes nowhere.
  context_.workers.stop();
  context_.picture_workers.stop();
  // The engine's last events go to a thread that is gone.
  host_.reset();
}

void Server::Service::refused(const HttpRequest* head, const HttpResponse& response, std::string_view remote) {
  const RouteMatch match = head ? find_route(head->method, head->path) : RouteMatch();
  context_.metrics.count_request(match.route ? std::string(match.route->path) : "none",
                                 head && match.route ? head->method : "none", response.status, 0);
  AccessLine line;
  line.remote = remote;
  if (head) {
    line.method = head->method;
    line.path = head->path;
  }
  line.request_id = response.headers.get("x-request-id");
  line.status = response.status;
  line.outcome = "refused";
  context_.log.add(line);
}

HttpAdmission Server::Service::admit(const HttpRequest& head) {
  if (head.method == "OPTIONS") return {};
  const RouteMatch match = find_route(head.method, head.path);
  if (auto refusal = gate_.refuse(head, match)) return {std::move(refusal), 0};
  const int32_t megabytes = match.route->media == RouteMedia::kForm ? settings_.max_file_mb : settings_.max_body_mb;
  return {std::nullopt, static_cast<size_t>(megabytes) << 20};
}

void Server::Service::handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  RouteMatch match = find_route(request.method, request.path);
  auto call = std::make_shared<Call>();
  call->exchange = exchange;
  call->route = match.route;
  call->params = std::move(match.params);
  call->request_id = gate_.request_id_of(request);
  call->dialect = context_.error_dialect(request.path);
  call->headers = gate_.common_headers(request, call->request_id);
  const Gate::Identity who = gate_.identify(request);
  call->key = who.key;
  call->tenant = who.tenant;
  call->retention = who.retention;
  call->line.remote = request.remote;
  call->line.method = request.method;
  call->line.path = request.path;
  call->line.bytes_in = request.body.size();
  exchange->on_end([this, call](const HttpEnd& end) { finish(*call, end); });
  if (request.method == "OPTIONS") return exchange->respond(gate_.preflight(request));
  // Asked again: the keys may have changed, or the model gone, while the body came.
  if (auto refusal = gate_.refuse(request, match)) return exchange->respond(std::move(*refusal));
  dispatch(call);
}

void Server::Service::finish(Call& call, const HttpEnd& end) {
  call.line.outcome = http_outcome_name(end.outcome);
  if (end.outcome != HttpOutcome::kComplete && call.on_gone) std::exchange(call.on_gone, nullptr)();
  call.on_gone = nullptr;
  const std::string route = call.route ? std::string(call.route->path) : "none";
  context_.metrics.count_request(route, call.line.method, end.status, static_cast<double>(end.end_us - end.begin_us) / 1e6);
  if (!context_.log.enabled()) return;
  call.line.request_id = call.request_id;
  call.line.key = call.key;
  call.line.status = end.status;
  call.line.duration_us = end.end_us - end.begin_us;
  call.line.first_byte_us = end.first_byte_us > 0 ? end.first_byte_us - end.begin_us : 0;
  call.line.bytes_out = end.bytes_sent;
  context_.log.add(call.line);
}

void Server::Service::tick() {
  const int64_t now = context_.clock.now_us();
  context_.log.flush();
  if (now < next_second_us_) return;
  next_second_us_ = now + 1'000'000;
  if (const Status status = context_.keys.reload_if_changed(); !status) {
    AccessLine line;
    line.outcome = "keys not reloaded: " + status.error().message;
    context_.log.add(line);
  }
  answers_.keep_alive(now);
}

void Server::Service::dispatch(const CallPtr& call) {
  if (generates(call->route->id)) context_.quotas[call->key].charge(1, 0);
  switch (call->route->id) {
    case RouteId::kConsole: return answer_console(*call);
    case RouteId::kLive: return call->respond_json(200, Json::object({{"status", "live"}}));
    case RouteId::kReady: return answer_ready(context_, *call, gate_.identify(call->request()).known);
    case RouteId::kScale: return answer_scale(context_, *call);
    case RouteId::kMetrics: return answer_metrics(context_, *call);
    case RouteId::kOpenApi: return call->respond(200, "application/json", openapi_text(context_.version));
    case RouteId::kVersion: return call->respond_json(200, Json::object({{"version", context_.version}, {"name", "deepinfer"}}));
    case RouteId::kModels: return answer_models(context_, *call);
    case RouteId::kModel: return answer_model(context_, *call);
    case RouteId::kCacheWhy: return answer_cache_why(context_, *call);
    case RouteId::kTokenize: return answer_tokenize(context_, call);
    case RouteId::kDetokenize: return answer_detokenize(context_, call);
    case RouteId::kChat:
    case RouteId::kCompletion:
    case RouteId::kMessages:
    case RouteId::kCreateResponse: return answers_.answer(call);
    case RouteId::kCountTokens:
    case RouteId::kCountInput: return answers_.count_tokens(call);
    case RouteId::kGetResponse:
    case RouteId::kDeleteResponse:
    case RouteId::kCancelResponse:
    case RouteId::kInputItems: return answer_kept_response(context_, *call);
    default: return batches_->handle(call);
  }
}

Server::Server(std::unique_ptr<Service> service) : service_(std::move(service)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const ServeSettings& settings, const ServerInfo& info) {
  auto service = std::make_unique<Service>(settings, info);
  DI_CHECK_OK(service->open());
  return std::unique_ptr<Server>(new Server(std::move(service)));
}

Status Server::load(const LoadProgress& progress, const HostOpener& opener) { return service_->load(progress, opener); }
std::string Server::url() const { return service_->url(); }
uint16_t Server::port() const { return service_->http().port(); }
Host& Server::host() { return service_->host(); }
Status Server::readiness() { return service_->readiness(); }
void Server::drain() { service_->drain(); }
bool Server::is_drained() const { return service_->is_drained(); }
void Server::stop() { service_->stop(); }

}  // namespace deepinfer
