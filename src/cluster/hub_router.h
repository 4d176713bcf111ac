// cluster/hub_router.h - the router over a frame hub. Internal to `cluster`; its door is cluster/router.h.
//
// router.cc: what callers ask of it. router_flights.cc: where requests are and where they go on. router_links.cc: what workers
// say and what the clock says. Threads: one lock guards all; events of workers, ticks and what a router ends by its own word come
// on the hub's thread, which alone calls handlers, never under the lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/fleet.h"
#include "cluster/flight.h"
#include "cluster/member_table.h"
#include "cluster/pending_pictures.h"
#include "cluster/router.h"
#include "net/frame_hub.h"
#include "policy/fair_lanes.h"

namespace deepinfer {

inline constexpr int32_t kNoWorker = -1;

using FlightPtr = std::shared_ptr<Flight>;

class HubRouter final : public Router {
 public:
  explicit HubRouter(RouterOptions options)
      : options_(std::move(options)),
        members_(std::max(options_.workers.size(), static_cast<size_t>(options_.slots))),
        fleet_(options_.policy, static_cast<int32_t>(members_.size()), options_.stall_us),
        links_(members_.size()) {}

  ~HubRouter() override {
    if (!hub_) return;
    // On the hub's thread, where handlers run.
    std::promise<void> ended;
    hub_->post([&] {
      closing_ = true;
      end_all("the router was stopped");
      ended.set_value();
    });
    ended.get_future().wait();
  }

  Status start();
  void set_workers(std::vector<Member> members) override;
  Result<ServiceFacts> wait_for_facts(int64_t us) override;
  Status health() const override;
  RouterStats stats() const override;
  ScaleSample scale(std::string_view role) const override;
  Result<RequestId> submit(Request request, EventHandler handler) override;
  void cancel(RequestId id) override;
  void finish(RequestId id, int64_t last_index) override;
  Result<std::vector<uint16_t>> encode(const PreparedImage& image) override;
  void leave() override;

 private:
  struct WorkerLink {
    LinkId id = 0;  // 0 = none
    int64_t placed = 0;
  };

  // What a worker would refuse is refused here, before anything is sent.
  static Status prepare(const ServiceFacts& facts, Request request, Flight& flight);
  PictureRows encode_once(const PreparedImage& image);

  // The rest holds mutex_, unless it says that it calls handlers.

  // Places it, lets it wait for its turn, or says why neither.
  Status admit(const FlightPtr& flight);
  // With keys: what would wait behind the slots of a worker could not make way for somebody who comes later.
  static bool takes_turns(const Flight& flight) { return !flight.request.tenant.empty(); }

  // Those whose turn it is, as far as there are slots.
  void place_queued();

  template <class M>
  void send(const Flight& flight, const M& message) {
    hub_->send(links_[static_cast<size_t>(flight.placed.worker)].id, M::kType, write_message(message));
  }

  // Its worker, or, while it waits for one, the turn that ends it.
  template <class M>
  void tell(const Flight& flight, const M& message) {
    if (flight.placed.worker >= 0) return send(flight, message);
    hub_->post([this] { retry_waiting(); });
  }

  // `handed`: its prompt is computed, and its pages are on their way.
  bool place(const FlightPtr& flight, bool handed = false);
  // The request is lent to the message and not copied: it may hold the rows of many pictures.
  void submit_to_worker(Flight& flight, SubmitMessage message, int64_t now_us);
  RouteChoice route_of(const Flight& flight, int64_t now_us, bool tight);
  void note_coming(Flight& flight, int32_t worker);
  // Who was expecting it.
  int32_t drop_coming(Flight& flight);

  static uint64_t tenant_hash(const Flight& flight) {
    return flight.keys.empty() ? flight.id : flight.keys[std::min<size_t>(flight.keys.size() - 1, 8)].low;
  }

  // The placement is over, whatever comes next.
  void leave(Flight& flight);
  // Its worker is gone or refused it: what is left of it goes elsewhere. Calls handlers.
  // A refusal is no move: nothing had begun.
  void move(const FlightPtr& flight, const std::string& why, int32_t avoid, bool was_refused = false);
  // Its prompt is computed. Calls handlers.
  void hand_on(const FlightPtr& flight);
  // Calls the handler.
  void deliver(const FlightPtr& flight, Event event);

  // From the hub.
  void connect(int32_t worker);
  void greet(LinkId link);
  int32_t worker_of(LinkId link) const;
  void lose(LinkId link, const Error& why);
  void take(LinkId link, uint8_t type, std::string_view bytes);
  Status dispatch(LinkId link, uint8_t type, std::string_view bytes);
  FlightPtr flight_of(uint64_t number) const;
  // Of an earlier placement: nobody listens any more.
  Status take_event(LinkId link, EventMessage message);
  // A full queue or a worker that is going; what is wrong with the request itself was found in submit().
  void take_refusal(LinkId link, const RefusedMessage& message);
  void give_rows(LinkId link, uint64_t number, PictureRows rows);
  void tick_later();
  void leave_hung();
  void hang_up(int32_t worker, const char* why);
  void leave_gone();
  // A worker looks at deadlines between its steps; one whose step does not end must not keep its requests beyond them.
  void end_late();
  // By the router's own word; their workers hear of it. Calls handlers.
  void end(const std::vector<FlightPtr>& flights, FinishReason reason, const std::string& why);
  // Calls handlers.
  void retry_waiting();
  // Calls handlers.
  void end_all(const std::string& why);

  const RouterOptions options_;
  const SteadyClock clock_;
  mutable std::mutex mutex_;
  std::condition_variable facts_known_;
  MemberTable members_;
  Fleet fleet_;
  std::vector<WorkerLink> links_;
  std::unordered_map<LinkId, int32_t> by_link_;
  std::map<RequestId, FlightPtr> flights_;
  std::unordered_map<uint64_t, FlightPtr> numbers_;  // by placement
  PendingPictures pictures_;
  TokenAccounts accounts_;  // of all tenants with requests inside
  FairLanes<FlightPtr> lanes_;
  RequestId last_id_ = 0;
  uint64_t next_number_ = 0;
  int64_t moved_ = 0, refused_ = 0, handed_ = 0;
  bool closing_ = false;  // the hub's thread only
  std::atomic<bool> leaving_{false};
  std::unique_ptr<FrameHub> hub_;
};

}  // namespace deepinfer
