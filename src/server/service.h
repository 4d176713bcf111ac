// server/service.h - the handler of the HTTP server: opening, dispatch, the end of each exchange. Inside the room only.
//
// Threads: as server.h; everything of HttpHandler on the server's thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/answers.h"
#include "server/batch_service.h"
#include "server/context.h"
#include "server/gate.h"
#include "server/server.h"

namespace deepinfer {

class Server::Service final : public HttpHandler {
 public:
  Service(const ServeSettings& settings, const ServerInfo& info);
  ~Service() override;
  Status open();
  Status load(const LoadProgress& progress, const HostOpener& opener);
  std::string url() const;
  HttpServer& http() { return *http_; }
  Host& host() { return *host_; }
  Status readiness();
  void drain();
  bool is_drained() const { return http_->is_drained(); }
  void stop();

  HttpAdmission admit(const HttpRequest& head) override;
  void handle(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse refusal(const HttpFault& fault, const HttpRequest* head) override { return gate_.malformed(fault, head); }
  void refused(const HttpRequest* head, const HttpResponse& response, std::string_view remote) override;
  void tick() override;

 private:
  void finish(Call& call, const HttpEnd& end);

  void dispatch(const CallPtr& call);
  // Any thread.
  std::string data_folder() const;  // "" = nothing is kept
  Result<std::string> fetch_image(const std::string& url, size_t max_bytes);

  ServeSettings settings_;
  ServerContext context_;
  Gate gate_;
  Answers answers_;
  std::string state_folder_, cache_folder_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<BatchService> batches_;
  int64_t next_second_us_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace deepinfer
