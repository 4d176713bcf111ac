// cluster/router.h - a TokenService over many workers.
//
// Each request goes to the worker that Fleet chooses; its events come back through the router, which notes every token. When the
// worker goes, hangs or is cut off, the request goes on elsewhere with the tokens it has: same seed, same positions, same bytes.
// Of tenants, no more is placed than runs: whose request is next is decided here, token-fair.
// Promise: submit() refuses what no worker would take, with the reason; every accepted request has one final event; tokens come
// in order, none twice; a request moves max_moves times at most and waits patience_us at most for a worker, besides its turn.
// Threads: submit(), cancel(), finish(), encode(), health(), stats() from any thread; handlers run on the router's own.
//
//   DI_TRY(auto router, Router::open({.workers = {{"10.0.0.7", 8101}}, .security = {.secret = secret}}));
//   DI_TRY(const ServiceFacts facts, router->wait_for_facts(60'000'000));
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/membership.h"
#include "core/service_facts.h"
#include "core/token_service.h"
#include "images/prepare.h"
#include "net/frame_hub.h"
#include "policy/autoscale.h"
#include "policy/routing.h"

namespace deepinfer {

struct RouterOptions {
  std::vector<WorkerAddress> workers;
  int32_t slots = 0;  // so many may come by set_workers(); 0: the list is for good
  LinkSecurity security;
  FrameLanes lane = FrameLanes::kNone;
  RoutingPolicy policy = RoutingPolicy::kDefault;
  int32_t max_moves = 5;
  int64_t patience_us = 20'000'000;
  std::array<int64_t, 4> first_token_us{};  // by RetentionClass: refuse what is predicted to begin later; 0 = nothing
  int64_t stall_us = 30'000'000;            // a worker without a finished step for so long is left
  std::function<void()> settled;            // behind events that came together, on the router's thread
};

struct RouterStats {
  struct Worker {
    std::string address;
    std::string trouble;  // "" = ready
    int32_t inside = 0;   // requests of this router
    int64_t placed = 0;
  };
  std::vector<Worker> workers;
  int64_t moved = 0;    // requests that went on elsewhere
  int64_t handed = 0;   // prompts whose answers went on where their pages had been sent
  int64_t waiting = 0;  // accepted ones without a worker now
  int64_t refused = 0;  // because of their tenant's share, or of the time to their first token
  int64_t inside = 0;
};

// In the text form of Prometheus (docs/operations.md has the table).
std::string metrics_text(const RouterStats& stats);

class Router : public TokenService {
 public:
  // REQUIRES: at least one worker or slot.
  static Result<std::unique_ptr<Router>> open(RouterOptions options);

  // Of the first worker that answers; kUnavailable with everybody's trouble after `us`.
  virtual Result<ServiceFacts> wait_for_facts(int64_t us) = 0;
  // All there are now; any thread. REQUIRES: slots > 0.
  virtual void set_workers(std::vector<Member> members) = 0;
  virtual Status health() const = 0;
  virtual RouterStats stats() const = 0;
  // Of the workers of a role (kWorkerRoleNames) that are ready; "" = of all.
  virtual ScaleSample scale(std::string_view role) const = 0;
  // The rows of a picture, by the vision tower of some worker. Waits.
  virtual Result<std::vector<uint16_t>> encode(const PreparedImage& image) = 0;
  // No picture is waited for any more.
  virtual void leave() = 0;
};

}  // namespace deepinfer
