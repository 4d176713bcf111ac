// What workers say, and what the clock says.
#include <fmt/format.h>

#include "cluster/hub_router.h"

namespace deepinfer {
namespace {
constexpr int64_t kTickUs = 100'000;
constexpr int64_t kReconnectUs = 300'000;
}  // namespace

void HubRouter::connect(int32_t worker) {
  const std::lock_guard lock(mutex_);
  const WorkerAddress& address = members_.at(worker)->at;
  const LinkId link = hub_->connect(address.host, address.port);
  links_[static_cast<size_t>(worker)].id = link;
  by_link_[link] = worker;
}

void HubRouter::greet(LinkId link) {
  const std::lock_guard lock(mutex_);
  if (const int32_t worker = worker_of(link); worker >= 0) fleet_.note_open(worker, clock_.now_us());
}

int32_t HubRouter::worker_of(LinkId link) const {
  const auto found = by_link_.find(link);
  return found == by_link_.end() ? kNoWorker : found->second;
}

void HubRouter::lose(LinkId link, const Error& why) {
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

void HubRouter::take(LinkId link, uint8_t type, std::string_view bytes) {
  const Status understood = dispatch(link, type, bytes);
  if (understood) return;
  hub_->close(link, understood.error());
}

Status HubRouter::dispatch(LinkId link, uint8_t type, std::string_view bytes) {
  switch (type) {
    case EventMessage::kType: {
      DI_TRY(EventMessage message, read_message<EventMessage>(bytes));
      return take_event(link, std::move(message));
    }
    case RefusedMessage::kType: {
      DI_TRY(const RefusedMessage message, read_message<RefusedMessage>(bytes));
      take_refusal(link, message);
      return {};
    }
    case EncodedMessage::kType: {
      DI_TRY(EncodedMessage message, read_message<EncodedMessage>(bytes));
      give_rows(link, message.number, std::move(message.embeddings));
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

Status HubRouter::take_event(LinkId link, EventMessage message) {
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

void HubRouter::take_refusal(LinkId link, const RefusedMessage& message) {
  FlightPtr flight;
  {
    const std::lock_guard lock(mutex_);
    flight = flight_of(message.number);
    if (flight && flight->placed.worker != worker_of(link)) return;
  }
  if (!flight) return give_rows(link, message.number, Error{message.code, message.message});
  const bool elsewhere = message.code == ErrorCode::kExhausted || message.code == ErrorCode::kUnavailable;
  if (elsewhere) return move(flight, "refused it: " + message.message, flight->placed.worker, true);
  deliver(flight, final_event(*flight, FinishReason::kError, message.message, message.code));
}

void HubRouter::give_rows(LinkId link, uint64_t number, PictureRows rows) {
  const std::lock_guard lock(mutex_);
  pictures_.give(number, worker_of(link), std::move(rows));
}

void HubRouter::tick_later() {
  hub_->after(kTickUs, [this] {
    if (closing_) return;
    leave_hung();
    leave_gone();
    end_late();
    retry_waiting();
    tick_later();
  });
}

void HubRouter::leave_hung() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < links_.size(); ++i) {
    const auto worker = static_cast<int32_t>(i);
    if (links_[i].id == 0 || !fleet_.hangs(worker, clock_.now_us())) continue;
    fleet_.note_hung(worker);
    hub_->close(links_[i].id, {ErrorCode::kUnavailable, "it hung: silent, or a step that did not end"});
  }
}

void HubRouter::hang_up(int32_t worker, const char* why) {
  const std::lock_guard lock(mutex_);
  if (const LinkId link = links_[static_cast<size_t>(worker)].id; link != 0) hub_->close(link, {ErrorCode::kUnavailable, why});
}

void HubRouter::leave_gone() {
  std::vector<int32_t> gone;
  {
    const std::lock_guard lock(mutex_);
    gone = members_.due(clock_.now_us());
  }
  for (const int32_t worker : gone) hang_up(worker, "it is no member any more");
}

}  // namespace deepinfer
