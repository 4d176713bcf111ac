// server/server.h - the HTTP service over one engine.
//
// open() binds the port and answers health; load() opens the model, and until it is done everything that needs one answers
// 503. Readiness is the age of the engine's last finished step (EngineProgress), not a wish.
// Promise: every accepted request has one end and one line in the access log; with a key file every route but the page and
// health needs a key.
// Threads: open(), load(), drain(), stop() from one thread; url(), is_drained(), reload_keys() from any.
//
//   DI_TRY(auto server, Server::open(settings, {.version = "1.0"}));
//   DI_CHECK_OK(server->load({}));
//   print(server->url());
//   server->drain();                       // SIGTERM
//   while (!server->is_drained()) wait();
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "host/host.h"
#include "server/settings.h"

namespace deepinfer {

struct ServerInfo {
  std::string version;
  std::string state_folder;  // for files and batches when the settings name none; "" = none are kept
  std::string cache_folder;  // for the KV store when the settings name none; "" = none then
};

using HostOpener = std::function<Result<std::unique_ptr<Host>>(const HostSettings&, HostOptions)>;

class Server {
 public:
  static Result<std::unique_ptr<Server>> open(const ServeSettings& settings, const ServerInfo& info);
  ~Server();

  // `opener` instead of Host::open: a router's host has no model.
  Status load(const LoadProgress& progress, const HostOpener& opener = {});
  std::string url() const;
  uint16_t port() const;
  Host& host();        // REQUIRES: loaded
  Status readiness();  // the same as /health/ready
  void drain();
  bool is_drained() const;
  void stop();

 private:
  class Service;
  explicit Server(std::unique_ptr<Service> service);
  std::unique_ptr<Service> service_;
};

}  // namespace deepinfer
