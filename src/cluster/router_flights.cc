// Where requests are and where they go on.
#include <fmt/format.h>

#include "cluster/hub_router.h"
#include "engine/validate.h"

namespace deepinfer {
namespace {
constexpr int64_t kLateUs = 500'000;
// Of an answer, that a worker must have room for before it is chosen to decode it; more of it comes as others end.
constexpr int64_t kReservedTokens = 1024;
}  // namespace

Status HubRouter::admit(const FlightPtr& flight) {
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
    return exhausted(fmt::format("the answer would begin in {:.1f} s, those of its class should within {:.1f} s: try again later",
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

void HubRouter::place_queued() {
  while (FlightPtr* next = lanes_.next(accounts_)) {
    if ((*next)->is_queued && !place(*next)) return;
    lanes_.take();
  }
}

bool HubRouter::place(const FlightPtr& flight, bool handed) {
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

void HubRouter::submit_to_worker(Flight& flight, SubmitMessage message, int64_t now_us) {
  const int64_t deadline_us = flight.request.deadline_us;
  message.request = std::move(flight.request);
  if (deadline_us > 0) message.request.deadline_us = std::max<int64_t>(1, deadline_us - now_us);
  if (flight.decode >= 0) message.request.max_tokens = static_cast<int32_t>(message.request.answered.size()) + 1;
  send(flight, message);
  flight.request = std::move(message.request);
  flight.request.deadline_us = deadline_us;
  flight.request.max_tokens = static_cast<int32_t>(flight.limit);
}

RouteChoice HubRouter::route_of(const Flight& flight, int64_t now_us, bool tight) {
  const auto have = static_cast<int64_t>(flight.request.answered.size()), left = flight.limit - have;
  const int64_t tokens = static_cast<int64_t>(flight.request.prompt.size()) + have;
  const PromptView view{.tokens = tokens, .hash = flight.id, .session = tenant_hash(flight)};
  // The last token needs nobody behind it.
  if (left < 2) return {.placed = fleet_.place(view, flight.keys, flight.avoided, now_us, tight)};
  return fleet_.route(view, tokens + std::min(left, kReservedTokens), flight.keys, flight.avoided, now_us, tight);
}

void HubRouter::note_coming(Flight& flight, int32_t worker) {
  flight.decode = worker;
  const auto drawn = draw_seed();  // nobody can guess the next one
  flight.hand_over = drawn && *drawn > 0 ? *drawn : flight.number;
  flight.coming_tokens = static_cast<int64_t>(flight.request.prompt.size() + flight.request.answered.size());
  fleet_.note_coming(worker, flight.coming_tokens);
}

int32_t HubRouter::drop_coming(Flight& flight) {
  const int32_t worker = std::exchange(flight.decode, kNoWorker);
  if (worker >= 0) fleet_.note_came(worker, flight.coming_tokens);
  flight.hand_over = 0;
  return worker;
}

void HubRouter::leave(Flight& flight) {
  if (flight.placed.worker < 0) return;
  if (std::exchange(flight.computing, false)) fleet_.note_computed(flight.placed, flight.keys);
  fleet_.note_end(flight.placed.worker);
  numbers_.erase(flight.number);
  flight.placed = {};
}

void HubRouter::move(const FlightPtr& flight, const std::string& why, int32_t avoid, bool was_refused) {
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

void HubRouter::hand_on(const FlightPtr& flight) {
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

void HubRouter::deliver(const FlightPtr& flight, Event event) {
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

FlightPtr HubRouter::flight_of(uint64_t number) const {
  const auto found = numbers_.find(number);
  return found == numbers_.end() ? nullptr : found->second;
}

void HubRouter::end_late() {
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

void HubRouter::end(const std::vector<FlightPtr>& flights, FinishReason reason, const std::string& why) {
  for (const FlightPtr& flight : flights) {
    {
      const std::lock_guard lock(mutex_);
      if (flight->placed.worker >= 0) send(*flight, CancelMessage{flight->number});
    }
    deliver(flight, final_event(*flight, reason, why));
  }
  if (!flights.empty() && options_.settled) options_.settled();
}

void HubRouter::retry_waiting() {
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

}  // namespace deepinfer
