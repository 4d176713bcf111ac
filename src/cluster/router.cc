#include "cluster/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/clock.h"
#include "base/hash.h"
#include "cluster/fleet.h"
#include "cluster/flight.h"
#include "cluster/member_table.h"
#include "cluster/pending_pictures.h"
#include "engine/validate.h"
#include "net/frame_hub.h"
#include "policy/fair_lanes.h"

namespace deepinfer {
namespace {

constexpr int64_t kTickUs = 100'000, kReconnectUs = 300'000, kEncodeUs = 60'000'000, kLateUs = 500'000;
constexpr int32_t kNoWorker = -1;
// Of an answer, that a worker must have room for before it is chosen to decode it; more of it comes as others end.
constexpr int64_t kReservedTokens = 1024;

using FlightPtr = std::shared_ptr<Flight>;

class HubRouter final : public Router {
 public:
  explicit HubRouter(RouterOptions options)
      : options_(std::move(options)),
        members_(std::max(options_.workers.size(), static_cast<size_t>(options_.slots))),
        fleet_(options_.policy, static_cast<int32_t>(members_.size()), options_.stall_us),
        links_(members_.size()) {}

  ~HubRouter() override {
    // On the hub's thread, where handlers run.
    std::promise<void> ended;
    hub_->post([&] {
      closing_ = true;
      end_all("the router was stopped");
      ended.set_value();
    });
    ended.get_future().wait();
  }

  Status start() {
    DI_TRY(hand_overs_, draw_seed());
    DI_TRY(hub_, FrameHub::open({.security = options_.security},
                                {.opened = [this](LinkId link) { greet(link); },
                                 .frame = [this](LinkId link, uint8_t type, std::string_view bytes) { take(link, type, bytes); },
                                 .closed = [this](LinkId link, const Error& why) { lose(link, why); },
                                 .settled = options_.settled}));
    for (size_t i = 0; i < links_.size(); ++i) fleet_.vacate(static_cast<int32_t>(i));
    std::vector<Member> members;
    for (const WorkerAddress& at : options_.workers) members.push_back({.at = at});
    set_workers(std::move(members));
    tick_later();
    return {};
  }

  void set_workers(std::vector<Member> members) override {
    hub_->post([this, members = std::move(members)] {
      MemberTable::Turn turn;
      {
        const std::lock_guard lock(mutex_);
        turn = members_.hear(members, clock_.now_us());
        for (const int32_t worker : turn.connect) fleet_.lose(worker, "not connected yet");
      }
      for (const int32_t worker : turn.connect) connect(worker);
      for (const int32_t worker : turn.close) hang_up(worker, "it was started anew");
    });
  }

  Result<ServiceFacts> wait_for_facts(int64_t us) override {
    std::unique_lock lock(mutex_);
    if (facts_known_.wait_for(lock, std::chrono::microseconds(us), [&] { return !fleet_.facts().model.empty(); }))
      return fleet_.facts();
    return fleet_.why_none(clock_.now_us());
  }

  Status health() const override {
    const std::lock_guard lock(mutex_);
    if (fleet_.any_ready(clock_.now_us())) return {};
    return fleet_.why_none(clock_.now_us());
  }

  RouterStats stats() const override {
    const std::lock_guard lock(mutex_);
    RouterStats out;
    out.moved = moved_;
    out.refused = refused_;
    out.handed = handed_;
    out.inside = static_cast<int64_t>(flights_.size());
    std::vector<int32_t> inside(links_.size());
    for (const auto& [id, flight] : flights_) {
      if (flight->placed.worker < 0) ++out.waiting;
      if (flight->placed.worker >= 0) ++inside[static_cast<size_t>(flight->placed.worker)];
    }
    for (size_t i = 0; i < links_.size(); ++i) {
      const auto worker = static_cast<int32_t>(i);
      if (const Member* member = members_.at(worker))
        out.workers.push_back({address_text(member->at), fleet_.trouble(worker, clock_.now_us()), inside[i], links_[i].placed});
    }
    return out;
  }

  ScaleSample scale(std::string_view role) const override {
    const std::lock_guard lock(mutex_);
    return fleet_.scale_sample(clock_.now_us(), role);
  }

  Result<RequestId> submit(Request request, EventHandler handler) override {
    auto flight = std::make_shared<Flight>();
    ServiceFacts facts;
    {
      const std::lock_guard lock(mutex_);
      facts = fleet_.facts();
    }
    DI_CHECK_OK(prepare(facts, std::move(request), *flight));
    flight->handler = std::move(handler);
    const std::lock_guard lock(mutex_);
    flight->id = ++last_id_;
    flight->account = accounts_.enter(flight->request.tenant);
    const Status admitted = admit(flight);
    if (!admitted) return accounts_.leave(flight->account), admitted.error();
    flights_[flight->id] = flight;
    return flight->id;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;
    found->second->cancelled = true;
    tell(*found->second, CancelMessage{found->second->number});
  }

  void finish(RequestId id, int64_t last_index) override {
    const std::lock_guard lock(mutex_);
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;
    Flight& flight = *found->second;
    const int64_t cut = std::max<int64_t>(0, last_index + 1);
    flight.cut = flight.cut < 0 ? cut : std::min(flight.cut, cut);
    tell(flight, FinishMessage{flight.number, last_index});
  }

  Result<std::vector<uint16_t>> encode(const PreparedImage& image) override {
    auto rows = encode_once(image);
    const bool is_lost = !rows && rows.error().code == ErrorCode::kUnavailable;
    return is_lost && !leaving_ ? encode_once(image) : rows;
  }

  void leave() override {
    leaving_ = true;
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < links_.size(); ++i) pictures_.lose(static_cast<int32_t>(i));
  }

 private:
  struct WorkerLink {
    LinkId id = 0;  // 0 = none
    int64_t placed = 0;
  };

  // What a worker would refuse is refused here, before anything is sent.
  static Status prepare(const ServiceFacts& facts, Request request, Flight& flight) {
    if (facts.model.empty()) return Error{ErrorCode::kUnavailable, "no worker has answered yet"};
    DI_CHECK_OK(validate_request(request, facts.shape, facts.context));
    const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
    DI_TRY(flight.limit, answer_limit(prompt_tokens, request.max_tokens, facts.context, facts.pages, facts.page_tokens));
    if (request.constraint.grammar && request.constraint.source.empty())
      return unsupported("a constraint without its source cannot be sent to a worker");
    // A continuation elsewhere draws the same tokens only with a seed that is known, and the same limit.
    if (!request.sampling.seed) {
      DI_TRY(request.sampling.seed, draw_seed());
    }
    request.max_tokens = static_cast<int32_t>(flight.limit);
    if (request.original_prompt_tokens == 0) request.original_prompt_tokens = prompt_tokens;
    const PageKey root = root_key(facts.pages_fingerprint, facts.bounded_pages, request.tenant);
    extend_page_keys(root, request.prompt, request.images, facts.page_tokens, flight.keys);
    flight.request = std::move(request);
    return {};
  }

  PictureRows encode_once(const PreparedImage& image) {
    EncodeMessage message{.width = image.pixels->width,
                          .height = image.pixels->height,
                          .tokens = image.tokens,
                          .content_hash = image.content_hash,
                          .pixels = image.pixels->pixels};
    std::future<PictureRows> rows;
    {
      const std::lock_guard lock(mutex_);
      message.number = ++next_number_;
      // Equal pictures to one worker, which keeps what it has made of them.
      const uint64_t content = hash_bytes(image.content_hash);
      const Placement placed = fleet_.place(Work::kPicture, {.tokens = 1 + image.tokens, .hash = content, .session = content}, {},
                                            {}, clock_.now_us());
      if (placed.worker < 0 || leaving_) return fleet_.refusal(clock_.now_us());
      rows = pictures_.add(message.number, placed.worker);
      hub_->send(links_[static_cast<size_t>(placed.worker)].id, EncodeMessage::kType, write_message(message));
    }
    if (rows.wait_for(std::chrono::microseconds(kEncodeUs)) == std::future_status::ready) return rows.get();
    const std::lock_guard lock(mutex_);
    pictures_.forget(message.number);
    return Error{ErrorCode::kUnavailable, "no worker has encoded the picture in time: try again later"};
  }

  // The rest holds mutex_, unless it says that it calls handlers.

  // Places it, lets it wait for its turn, or says why neither.
  Status admit(const FlightPtr& flight) {
    const int64_t now_us = clock_.now_us();
    const Fleet::Capacity all = fleet_.capacity(now_us);
    const int64_t mine = accounts_.requests(flight->account) - 1, inside = static_cast<int64_t>(flights_.size());
    if (takes_turns(*flight) && all.room > inside && !may_enter(mine, inside, all.room, all.slots)) {
      ++refused_;
      return exhausted(fmt::format("this key has {} requests inside, as many as may be: try again later", mine));
    }
    const int64_t objective_us = options_.first_token_us[static_cast<size_t>(flight->request.retention)];
    if (const Placement best = objective_us > 0 ? route_of(*flight, now_us, false).placed : Placement();
        best.worker >= 0 && best.first_token_us > static_cast<double>(objective_us)) {
      ++refused_;
      return exhausted(
          fmt::format("the answer would begin in {:.1f} s, those of its class should within {:.1f} s: try again later",
                      best.first_token_us / 1e6, static_cast<double>(objective_us) / 1e6));
    }
    if (lanes_.empty() && place(flight)) return {};
    if (!takes_turns(*flight) || all.room <= inside)
      return all.room > 0 ? exhausted("every worker that is ready has a full queue: try again later") : fleet_.refusal(now_us);
    flight->is_queued = true;
    flight->waits_since_us = now_us;
    lanes_.add(flight->request.priority, flight->account, flight);
    return {};
  }

  // With keys: what would wait behind the slots of a worker could not make way for somebody who comes later.
  static bool takes_turns(const Flight& flight) { return !flight.request.tenant.empty(); }

  // Those whose turn it is, as far as there are slots.
  void place_queued() {
    while (FlightPtr* next = lanes_.next(accounts_)) {
      if ((*next)->is_queued && !place(*next)) return;
      lanes_.take();
    }
  }

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
  bool place(const FlightPtr& flight, bool handed = false) {
    const int64_t now_us = clock_.now_us();
    const uint64_t pages = flight->hand_over;
    const int32_t next = drop_coming(*flight);
    handed = handed && next >= 0 && fleet_.can_take(next, now_us);
    const RouteChoice route = handed ? RouteChoice{.placed = {.worker = next}} : route_of(*flight, now_us, takes_turns(*flight));
    flight->placed = route.placed;
    if (flight->placed.worker < 0) return false;
    handed_ += handed;
    flight->is_queued = false;
    accounts_.charge(flight->account, flight->placed.computed_tokens);
    fleet_.note_placed(flight->placed, flight->keys);
    ++links_[static_cast<size_t>(flight->placed.worker)].placed;
    flight->computing = true;
    flight->number = ++next_number_;
    numbers_[flight->number] = flight;
    if (route.decode >= 0) note_coming(*flight, route.decode);
    SubmitMessage message{.number = flight->number, .hand_over = handed ? pages : flight->hand_over};
    if (route.decode >= 0) {
      message.to_host = members_.at(route.decode)->at.host;
      message.to_port = fleet_.page_port(route.decode);
      message.first_page = route.held_pages;
    }
    submit_to_worker(*flight, std::move(message), now_us);
    if (flight->cancelled) send(*flight, CancelMessage{flight->number});
    if (flight->cut >= 0) send(*flight, FinishMessage{flight->number, flight->cut - 1});
    return true;
  }

  // The request is lent to the message and not copied: it may hold the rows of many pictures.
  void submit_to_worker(Flight& flight, SubmitMessage message, int64_t now_us) {
    const int64_t deadline_us = flight.request.deadline_us;
    message.request = std::move(flight.request);
    if (deadline_us > 0) message.request.deadline_us = std::max<int64_t>(1, deadline_us - now_us);
    if (flight.decode >= 0) message.request.max_tokens = static_cast<int32_t>(message.request.answered.size()) + 1;
    send(flight, message);
    flight.request = std::move(message.request);
    flight.request.deadline_us = deadline_us;
    flight.request.max_tokens = static_cast<int32_t>(flight.limit);
  }

  RouteChoice route_of(const Flight& flight, int64_t now_us, bool tight) {
    const auto have = static_cast<int64_t>(flight.request.answered.size()), left = flight.limit - have;
    const int64_t tokens = static_cast<int64_t>(flight.request.prompt.size()) + have;
    const PromptView view{.tokens = tokens, .hash = flight.id, .session = tenant_hash(flight)};
    // The last token needs nobody behind it.
    if (left < 2) return {.placed = fleet_.place(view, flight.keys, flight.avoided, now_us, tight)};
    return fleet_.route(view, tokens + std::min(left, kReservedTokens), flight.keys, flight.avoided, now_us, tight);
  }

  void note_coming(Flight& flight, int32_t worker) {
    flight.decode = worker;
    flight.hand_over = hand_overs_ + flight.number;
    flight.coming_tokens = static_cast<int64_t>(flight.request.prompt.size() + flight.request.answered.size());
    fleet_.note_coming(worker, flight.coming_tokens);
  }

  // Who was expecting it.
  int32_t drop_coming(Flight& flight) {
    const int32_t worker = std::exchange(flight.decode, kNoWorker);
    if (worker >= 0) fleet_.note_came(worker, flight.coming_tokens);
    flight.hand_over = 0;
    return worker;
  }

  static uint64_t tenant_hash(const Flight& flight) {
    return flight.keys.empty() ? flight.id : flight.keys[std::min<size_t>(flight.keys.size() - 1, 8)].low;
  }

  // The placement is over, whatever comes next.
  void leave(Flight& flight) {
    if (flight.placed.worker < 0) return;
    if (std::exchange(flight.computing, false)) fleet_.note_computed(flight.placed, flight.keys);
    fleet_.note_end(flight.placed.worker);
    numbers_.erase(flight.number);
    flight.placed = {};
  }

  // Its worker is gone or refused it: what is left of it goes elsewhere. Calls handlers.
  // A refusal is no move: nothing had begun.
  void move(const FlightPtr& flight, const std::string& why, int32_t avoid, bool was_refused = false) {
    std::optional<Event> end;
    {
      const std::lock_guard lock(mutex_);
      leave(*flight);
      flight->avoided.push_back(avoid);
      if (!was_refused) ++flight->moves, ++moved_;
      if (!was_refused || flight->waits_since_us == 0) flight->waits_since_us = clock_.now_us();
      end = end_without_worker(*flight, clock_.now_us(), options_.max_moves, why);
      if (!end && !place(flight)) return;  // a tick tries again
    }
    if (end) deliver(flight, std::move(*end));
  }

  // Its prompt is computed. Calls handlers.
  void hand_on(const FlightPtr& flight) {
    std::optional<Event> end;
    {
      const std::lock_guard lock(mutex_);
      leave(*flight);
      flight->waits_since_us = clock_.now_us();
      end = end_without_worker(*flight, clock_.now_us(), options_.max_moves, "");
      if (!end) place(flight, true);  // else a tick tries again
      place_queued();
    }
    if (end) deliver(flight, std::move(*end));
  }

  // Calls the handler.
  void deliver(const FlightPtr& flight, Event event) {
    event.request = flight->id;
    if (event.finish != FinishReason::kNone) {
      const std::lock_guard lock(mutex_);
      leave(*flight);
      drop_coming(*flight);
      flight->is_queued = false;
      if (event.index > 0) fleet_.note_answer(event.usage.prompt_tokens - event.usage.cached_tokens, event.index);
      if (flights_.erase(flight->id) > 0) accounts_.leave(flight->account);
      place_queued();
    }
    flight->handler(event);
  }

  // From the hub.

  void connect(int32_t worker) {
    const std::lock_guard lock(mutex_);
    const WorkerAddress& address = members_.at(worker)->at;
    const LinkId link = hub_->connect(address.host, address.port);
    links_[static_cast<size_t>(worker)].id = link;
    by_link_[link] = worker;
  }

  void greet(LinkId link) {
    const std::lock_guard lock(mutex_);
    if (const int32_t worker = worker_of(link); worker >= 0) fleet_.note_open(worker, clock_.now_us());
  }

  int32_t worker_of(LinkId link) const {
    const auto found = by_link_.find(link);
    return found == by_link_.end() ? kNoWorker : found->second;
  }

  void lose(LinkId link, const Error& why) {
    std::vector<FlightPtr> moving;
    int32_t worker = kNoWorker;
    bool stays = false;
    {
      const std::lock_guard lock(mutex_);
      worker = worker_of(link);
      if (worker < 0) return;
      by_link_.erase(link);
      links_[static_cast<size_t>(worker)].id = 0;
      fleet_.lose(worker, why.message);
      stays = members_.lost(worker);
      if (!stays) fleet_.vacate(worker), links_[static_cast<size_t>(worker)] = {};
      for (const auto& [id, flight] : flights_) {
        if (flight->placed.worker == worker) moving.push_back(flight);
      }
      pictures_.lose(worker);
    }
    if (closing_) return;
    std::sort(moving.begin(), moving.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
    for (const FlightPtr& flight : moving) move(flight, "was lost", worker);
    if (!stays) return;
    hub_->after(kReconnectUs, [this, worker] {
      if (!closing_) connect(worker);
    });
  }

  void take(LinkId link, uint8_t type, std::string_view bytes) {
    const Status understood = dispatch(link, type, bytes);
    if (understood) return;
    hub_->close(link, understood.error());
  }

  Status dispatch(LinkId link, uint8_t type, std::string_view bytes) {
    switch (type) {
      case EventMessage::kType: {
        DI_TRY(EventMessage message, read_message<EventMessage>(bytes));
        return take_event(link, std::move(message));
      }
      case RefusedMessage::kType: {
        DI_TRY(const RefusedMessage message, read_message<RefusedMessage>(bytes));
        take_refusal(message);
        return {};
      }
      case EncodedMessage::kType: {
        DI_TRY(EncodedMessage message, read_message<EncodedMessage>(bytes));
        give_rows(message.number, std::move(message.embeddings));
        return {};
      }
      default: break;
    }
    const std::lock_guard lock(mutex_);
    const int32_t worker = worker_of(link);
    if (worker < 0) return {};
    if (type == HelloMessage::kType) {
      DI_TRY(const HelloMessage message, read_message<HelloMessage>(bytes));
      DI_CHECK_OK(fleet_.hear(worker, message, clock_.now_us()));
      facts_known_.notify_all();
      return {};
    }
    if (type == LoadMessage::kType) {
      DI_TRY(const LoadMessage message, read_message<LoadMessage>(bytes));
      DI_CHECK_OK(fleet_.hear(worker, message, clock_.now_us()));
      place_queued();
      return {};
    }
    if (type == BlocksMessage::kType) {
      DI_TRY(const BlocksMessage message, read_message<BlocksMessage>(bytes));
      return fleet_.hear(worker, message);
    }
    return corrupt(fmt::format("a message of unknown type {}", type));
  }

  FlightPtr flight_of(uint64_t number) const {
    const auto found = numbers_.find(number);
    return found == numbers_.end() ? nullptr : found->second;
  }

  // Of an earlier placement: nobody listens any more.
  Status take_event(LinkId link, EventMessage message) {
    FlightPtr flight;
    Event& event = message.event;
    int32_t worker = kNoWorker;
    bool gave_up = false;
    {
      const std::lock_guard lock(mutex_);
      flight = flight_of(message.number);
      worker = worker_of(link);
      if (!flight || worker != flight->placed.worker) return {};
      gave_up = event.finish == FinishReason::kCancelled && !flight->cancelled;
    }
    bool goes_on = false;
    // Nobody here asked for that end: the worker is going.
    if (gave_up) return move(flight, "was stopped", worker), Status();
    {
      const std::lock_guard lock(mutex_);
      const int64_t index = event.index;
      if (!follow(*flight, event)) {
        return corrupt(fmt::format("token {} of an answer that has {}", index, flight->request.answered.size()));
      }
      if (event.token) accounts_.charge(flight->account, 1);
      if (event.token && std::exchange(flight->computing, false)) fleet_.note_computed(flight->placed, flight->keys);
      goes_on = hands_on(*flight, event);
    }
    if (goes_on) return hand_on(flight), Status();
    deliver(flight, std::move(event));
    return {};
  }

  // A full queue or a worker that is going; what is wrong with the request itself was found in submit().
  void take_refusal(const RefusedMessage& message) {
    FlightPtr flight;
    {
      const std::lock_guard lock(mutex_);
      flight = flight_of(message.number);
    }
    if (!flight) return give_rows(message.number, Error{message.code, message.message});
    const bool elsewhere = message.code == ErrorCode::kExhausted || message.code == ErrorCode::kUnavailable;
    if (elsewhere) return move(flight, "refused it: " + message.message, flight->placed.worker, true);
    deliver(flight, final_event(*flight, FinishReason::kError, message.message, message.code));
  }

  void give_rows(uint64_t number, PictureRows rows) {
    const std::lock_guard lock(mutex_);
    pictures_.give(number, std::move(rows));
  }

  void tick_later() {
    hub_->after(kTickUs, [this] {
      if (closing_) return;
      leave_hung();
      leave_gone();
      end_late();
      retry_waiting();
      tick_later();
    });
  }

  void leave_hung() {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < links_.size(); ++i) {
      const auto worker = static_cast<int32_t>(i);
      if (links_[i].id != 0 && fleet_.hangs(worker, clock_.now_us()))
        hub_->close(links_[i].id, {ErrorCode::kUnavailable, "it hung: silent, or a step that did not end"});
    }
  }

  void hang_up(int32_t worker, const char* why) {
    const std::lock_guard lock(mutex_);
    if (const LinkId link = links_[static_cast<size_t>(worker)].id; link != 0) hub_->close(link, {ErrorCode::kUnavailable, why});
  }

  void leave_gone() {
    std::vector<int32_t> gone;
    {
      const std::lock_guard lock(mutex_);
      gone = members_.due(clock_.now_us());
    }
    for (const int32_t worker : gone) hang_up(worker, "it is no member any more");
  }

  // A worker looks at deadlines between its steps; one whose step does not end must not keep its requests beyond them.
  void end_late() {
    std::vector<FlightPtr> late;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, flight] : flights_) {
        const int64_t deadline_us = flight->request.deadline_us;
        if (deadline_us > 0 && flight->placed.worker >= 0 && clock_.now_us() > deadline_us + kLateUs) late.push_back(flight);
      }
    }
    end(late, FinishReason::kDeadline, "the deadline of the request passed");
  }

  // By the router's own word; their workers hear of it. Calls handlers.
  void end(const std::vector<FlightPtr>& flights, FinishReason reason, const std::string& why) {
    for (const FlightPtr& flight : flights) {
      {
        const std::lock_guard lock(mutex_);
        if (flight->placed.worker >= 0) send(*flight, CancelMessage{flight->number});
      }
      deliver(flight, final_event(*flight, reason, why));
    }
    if (!flights.empty() && options_.settled) options_.settled();
  }

  // Calls handlers.
  void retry_waiting() {
    std::vector<std::pair<FlightPtr, Event>> over;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, flight] : flights_) {
        if (flight->placed.worker >= 0) continue;
        const int64_t now_us = clock_.now_us();
        if (flight->is_queued && fleet_.any_ready(now_us)) flight->waits_since_us = now_us;  // only its turn is waited for
        const bool impatient = now_us - flight->waits_since_us > options_.patience_us;
        flight->avoided.clear();  // whoever was avoided is better than nobody
        if (auto end = end_without_worker(*flight, clock_.now_us(), options_.max_moves, "")) {
          over.emplace_back(flight, std::move(*end));
        } else if ((flight->is_queued || !place(flight)) && impatient) {
          const Error why = fleet_.refusal(clock_.now_us());
          over.emplace_back(flight, final_event(*flight, FinishReason::kError, why.message, why.code));
        }
      }
    }
    for (auto& [flight, event] : over) deliver(flight, std::move(event));
    if (!over.empty() && options_.settled) options_.settled();
  }

  // Calls handlers.
  void end_all(const std::string& why) {
    leave();
    std::vector<FlightPtr> left;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, flight] : flights_) left.push_back(flight);
    }
    end(left, FinishReason::kCancelled, why);
  }

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
  uint64_t hand_overs_ = 0;  // drawn; their numbers begin here
  bool closing_ = false;     // the hub's thread only
  std::atomic<bool> leaving_{false};
  std::unique_ptr<FrameHub> hub_;
};

}  // namespace

Result<std::unique_ptr<Router>> Router::open(RouterOptions options) {
  auto router = std::make_unique<HubRouter>(std::move(options));
  DI_CHECK_OK(router->start());
  return std::unique_ptr<Router>(std::move(router));
}

}  // namespace deepinfer
