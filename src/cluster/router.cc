// What callers ask of a router.
#include "base/hash.h"
#include "cluster/hub_router.h"
#include "engine/validate.h"

namespace deepinfer {
namespace {
constexpr int64_t kEncodeUs = 60'000'000;
}  // namespace

Status HubRouter::start() {
  DI_TRY(hub_, FrameHub::open({.security = options_.security, .lane = options_.lane},
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

void HubRouter::set_workers(std::vector<Member> members) {
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

Result<ServiceFacts> HubRouter::wait_for_facts(int64_t us) {
  std::unique_lock lock(mutex_);
  if (facts_known_.wait_for(lock, std::chrono::microseconds(us), [&] { return !fleet_.facts().model.empty(); }))
    return fleet_.facts();
  return fleet_.why_none(clock_.now_us());
}

Status HubRouter::health() const {
  const std::lock_guard lock(mutex_);
  if (fleet_.any_ready(clock_.now_us())) return {};
  return fleet_.why_none(clock_.now_us());
}

RouterStats HubRouter::stats() const {
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

ScaleSample HubRouter::scale(std::string_view role) const {
  const std::lock_guard lock(mutex_);
  return fleet_.scale_sample(clock_.now_us(), role);
}

Result<RequestId> HubRouter::submit(Request request, EventHandler handler) {
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

void HubRouter::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = flights_.find(id);
  if (found == flights_.end()) return;
  found->second->cancelled = true;
  tell(*found->second, CancelMessage{found->second->number});
}

void HubRouter::finish(RequestId id, int64_t last_index) {
  const std::lock_guard lock(mutex_);
  const auto found = flights_.find(id);
  if (found == flights_.end()) return;
  Flight& flight = *found->second;
  const int64_t cut = std::max<int64_t>(0, last_index + 1);
  flight.cut = flight.cut < 0 ? cut : std::min(flight.cut, cut);
  tell(flight, FinishMessage{flight.number, last_index});
}

Result<std::vector<uint16_t>> HubRouter::encode(const PreparedImage& image) {
  auto rows = encode_once(image);
  const bool is_lost = !rows && rows.error().code == ErrorCode::kUnavailable;
  return is_lost && !leaving_ ? encode_once(image) : rows;
}

void HubRouter::leave() {
  leaving_ = true;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < links_.size(); ++i) pictures_.lose(static_cast<int32_t>(i));
}

Status HubRouter::prepare(const ServiceFacts& facts, Request request, Flight& flight) {
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

PictureRows HubRouter::encode_once(const PreparedImage& image) {
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
    const Placement placed =
        fleet_.place(Work::kPicture, {.tokens = 1 + image.tokens, .hash = content, .session = content}, {}, {}, clock_.now_us());
    if (placed.worker < 0 || leaving_) return fleet_.refusal(clock_.now_us());
    rows = pictures_.add(message.number, placed.worker);
    hub_->send(links_[static_cast<size_t>(placed.worker)].id, EncodeMessage::kType, write_message(message));
  }
  if (rows.wait_for(std::chrono::microseconds(kEncodeUs)) == std::future_status::ready) return rows.get();
  const std::lock_guard lock(mutex_);
  pictures_.forget(message.number);
  return Error{ErrorCode::kUnavailable, "no worker has encoded the picture in time: try again later"};
}

void HubRouter::end_all(const std::string& why) {
  leave();
  std::vector<FlightPtr> left;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, flight] : flights_) left.push_back(flight);
  }
  end(left, FinishReason::kCancelled, why);
}

Result<std::unique_ptr<Router>> Router::open(RouterOptions options) {
  auto router = std::make_unique<HubRouter>(std::move(options));
  DI_CHECK_OK(router->start());
  return std::unique_ptr<Router>(std::move(router));
}

}  // namespace deepinfer
