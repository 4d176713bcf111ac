// cluster/worker_port.h - the engine of this process for routers on other machines.
//
// Promise: a router that leaves takes its requests with it (they are cancelled); what the engine refuses is told with its reason;
// what is handed over goes through a page exchange of its own; loads are told ten times a second, changes of cached pages as they
// come, everything again to a router that comes anew. Threads: open() and the destructor from one thread, behind those of the
// host; note_pages() from the engine's; all else on the hub's.
//
//   WorkerPortOptions options{.hub = {.security = {.secret = secret}, .address = "0.0.0.0", .port = 8101}};
//   DI_TRY(auto port, WorkerPort::open(options));
//   HostOptions host_options{.pages_changed = [&](auto changes) { port->note_pages(changes); }};
//   port->serve(host);    // from now on requests are taken
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "cluster/page_exchange.h"
#include "cluster/wire.h"
#include "host/host.h"
#include "net/frame_hub.h"

namespace deepinfer {

struct WorkerPortOptions {
  FrameHubOptions hub;
  std::function<Status()> readiness;  // of the server around it; any thread
  WorkerRole role = WorkerRole::kAll;
  uint16_t page_port = 0;  // of its page exchange, at the hub's address; 0 = any free one
};

class WorkerPort {
 public:
  static Result<std::unique_ptr<WorkerPort>> open(const WorkerPortOptions& options);
  virtual ~WorkerPort() = default;

  virtual uint16_t port() const = 0;
  // With an engine, unless the role is to encode. `host` must outlive the port or withdraw().
  virtual void serve(Host& host) = 0;
  virtual void withdraw() = 0;
  virtual void note_pages(std::span<const PageChange> changes) = 0;
  // Takes nothing new and says so; what runs goes on.
  virtual void drain() = 0;
  virtual size_t num_running() const = 0;
  // How its pages and pictures go, in a line for people; "" = by TCP, as it was told.
  virtual std::string transport() const = 0;
  // In the text form of Prometheus; any thread.
  virtual std::string metrics() const = 0;
};

}  // namespace deepinfer
