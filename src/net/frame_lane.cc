#include "net/frame_lane.h"

#include <openssl/rand.h>
#include <xxhash.h>

#include <boost/asio/post.hpp>
#include <cstddef>
#include <cstring>
#include <utility>

namespace deepinfer {
namespace {

enum class Say : char { kOffer, kStandIn };
// In the place of a frame: after the kind. The peer's memory is read without it: if it left in between, this is how it shows.
struct StandIn {
  uint64_t number = 0, size = 0, checksum = 0;
  uint8_t type = 0;
};
constexpr size_t kStandInBytes = 1 + offsetof(StandIn, type) + 1;
// A peer that was killed comes back to it; where memory of others may not be read it is tried seldom.
constexpr auto kOffFor = std::chrono::minutes(10);

std::string bytes_of(const StandIn& stand_in) {
  return std::string(1, static_cast<char>(Say::kStandIn)) +
         std::string(reinterpret_cast<const char*>(&stand_in), kStandInBytes - 1);
}

}  // namespace

FrameLane::FrameLane(boost::asio::io_context& io, std::unique_ptr<SideLane> lane, int64_t patience_us, Calls calls)
    : io_(io), lane_(std::move(lane)), patience_(patience_us), calls_(std::move(calls)), events_(io, lane_->handle()) {
  turn_soon();
}

FrameLane::~FrameLane() { events_.release(); }

void FrameLane::offer(LinkId id, const std::string& peer) {
  auto& link = links_[id] = std::make_unique<Link>(io_);
  link->peer = peer;
  if (Clock::now() < wrong_until_) return;
  if (const auto off = off_until_.find(peer); off != off_until_.end() && Clock::now() < off->second) return;
  link->offered = true;
  std::string key(SideLane::kKeyBytes, '\0');
  RAND_bytes(reinterpret_cast<unsigned char*>(key.data()), static_cast<int>(key.size()));
  lane_->expect(id, key);
  calls_.say(id, std::string(1, static_cast<char>(Say::kOffer)) + key + std::string(lane_->address()));
}

bool FrameLane::is_joined(LinkId id) const {
  const auto found = links_.find(id);
  return found != links_.end() && found->second->joined;
}

size_t FrameLane::unsent(LinkId id) const {
  size_t out = 0;
  if (const auto found = links_.find(id); found != links_.end()) {
    for (const auto& [number, bytes] : found->second->unsent) out += bytes;
  }
  return out;
}

void FrameLane::send(LinkId id, uint8_t type, std::string frame, size_t head_bytes) {
  Link& link = *links_[id];
  const uint64_t number = link.sent++, size = frame.size() - head_bytes;
  link.unsent[number] = size;
  calls_.say(id, bytes_of({number, size, XXH3_64bits(frame.data() + head_bytes, size), type}));
  lane_->send(id, number, std::move(frame), head_bytes);
  turn_soon();
}

Result<FrameLane::Taken> FrameLane::take(LinkId id, std::string_view bytes) {
  const auto found = links_.find(id);
  if (found == links_.end() || bytes.empty()) return corrupt("a frame beside a connection that has no lane");
  return bytes[0] == static_cast<char>(Say::kOffer) ? take_offer(id, *found->second, bytes)
                                                    : take_frame(id, *found->second, bytes);
}

// Where nothing leads to the peer, as to another machine without RDMA, everything stays on the connection.
Result<FrameLane::Taken> FrameLane::take_offer(LinkId id, Link& link, std::string_view bytes) {
  if (bytes.size() <= 1 + SideLane::kKeyBytes || link.joined) return corrupt("an offer of a lane that does not read");
  const std::string key(bytes.substr(1, SideLane::kKeyBytes));
  link.joined = link.offered && lane_->join(id, bytes.substr(1 + SideLane::kKeyBytes), key);
  turn_soon();
  return Taken();
}

Result<FrameLane::Taken> FrameLane::take_frame(LinkId id, Link& link, std::string_view bytes) {
  if (bytes.size() != kStandInBytes || !link.offered) return corrupt("a stand-in of a frame that does not read");
  StandIn wanted;
  std::memcpy(static_cast<void*>(&wanted), bytes.data() + 1, kStandInBytes - 1);
  const auto come = link.come.find(wanted.number);
  if (come == link.come.end()) {
    if (std::exchange(link.waits, true)) return Taken{.waits = true};
    link.late.expires_after(patience_);
    link.late.async_wait([this, id](boost::system::error_code ec) {
      if (!ec && is_late(id))
        calls_.fail(id, {ErrorCode::kUnavailable, "what the peer sends beside the connection does not come"});
    });
    return Taken{.waits = true};
  }
  Taken out{.type = wanted.type, .bytes = std::move(come->second)};
  link.come.erase(come);
  if (out.bytes.size != wanted.size || XXH3_64bits(out.bytes.data.get(), out.bytes.size) != wanted.checksum) {
    wrong_until_ = Clock::now() + kOffFor;
    return corrupt("what came beside the connection is not what was sent");
  }
  return out;
}

bool FrameLane::is_late(LinkId id) const {
  const auto found = links_.find(id);
  return found != links_.end() && found->second->waits && found->second->late.expiry() <= Clock::now();
}

void FrameLane::leave(LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  const Link& link = *found->second;
  if (!link.peer.empty() && (link.broke || link.waits || !link.unsent.empty())) off_until_[link.peer] = Clock::now() + kOffFor;
  links_.erase(found);
  lane_->leave(id);
  turn_soon();
}

void FrameLane::turn_soon() {
  if (std::exchange(soon_, true)) return;
  boost::asio::post(io_, [this] {
    soon_ = false;
    turn();
  });
}

void FrameLane::turn() {
  const bool more = lane_->turn(come_);
  std::vector<LaneEvent> events;
  events.swap(come_);
  for (LaneEvent& event : events) handle(std::move(event));
  if (more) return turn_soon();
  if (std::exchange(listens_, true)) return;
  events_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](boost::system::error_code ec) {
    listens_ = false;
    if (!ec) turn();
  });
}

void FrameLane::handle(LaneEvent event) {
  const auto found = links_.find(event.link);
  if (found == links_.end()) return;
  Link& link = *found->second;
  switch (event.kind) {
    case LaneEvent::Kind::kSent: link.unsent.erase(event.number); return;
    case LaneEvent::Kind::kBroke:
      link.broke = true;
      return calls_.fail(event.link, {ErrorCode::kUnavailable, "the lane beside the connection broke: " + event.why});
    case LaneEvent::Kind::kCame: link.come[event.number] = std::move(event.bytes);
  }
  if (!std::exchange(link.waits, false)) return;
  link.late.cancel();
  calls_.go_on(event.link);
}

}  // namespace deepinfer
