// net/frame_lane.h - the large frames of a hub beside their connections. Inside the room only.
//
// Where both sides have a side lane, the bytes of a frame of kLaneBytes or more go through it, and a stand-in takes the frame's
// place on the connection: so the connection keeps the order, proves who speaks and tells when the peer is gone, and all that the
// lane can do wrong is to be late, or to bring what its checksum finds wrong. Each side's address and a random key go over the
// connection. A link whose lane breaks or is late by `patience_us` is closed; the next ones to that peer keep everything on the
// connection for a while, after wrong bytes all. Threads: the hub's.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/frame_hub.h"
#include "net/side_lane.h"

namespace deepinfer {

class FrameLane {
 public:
  static constexpr uint8_t kType = 255;           // of its own frames on a connection
  static constexpr size_t kLaneBytes = 32 << 10;  // below a page of the release

  struct Calls {
    std::function<void(LinkId, std::string_view)> say;  // a frame of kType
    std::function<void(LinkId)> go_on;                  // what take() asked to wait for has come
    std::function<void(LinkId, Error)> fail;
  };
  FrameLane(boost::asio::io_context& io, std::unique_ptr<SideLane> lane, int64_t patience_us, Calls calls);
  ~FrameLane();

  // To a link that is proven; `peer` is whom it called, "" = it was called.
  void offer(LinkId link, const std::string& peer);
  bool is_joined(LinkId link) const;
  // Bytes of `link` that the peer has not fetched.
  size_t unsent(LinkId link) const;
  // REQUIRES: joined. A frame whose bytes begin behind `head_bytes`.
  void send(LinkId link, uint8_t type, std::string frame, size_t head_bytes);

  struct Taken {
    bool waits = false;           // ask again after go_on()
    std::optional<uint8_t> type;  // a frame; else it was an offer
    LaneBytes bytes;
  };
  Result<Taken> take(LinkId link, std::string_view bytes);
  void leave(LinkId link);

 private:
  using Clock = std::chrono::steady_clock;
  struct Link {
    explicit Link(boost::asio::io_context& io) : late(io) {}
    std::string peer;
    bool offered = false, joined = false, waits = false, broke = false;
    uint64_t sent = 0;
    std::unordered_map<uint64_t, size_t> unsent;
    std::unordered_map<uint64_t, LaneBytes> come;
    boost::asio::steady_timer late;
  };

  void turn();
  void turn_soon();
  void handle(LaneEvent event);
  bool is_late(LinkId id) const;
  Result<Taken> take_offer(LinkId id, Link& link, std::string_view bytes);
  Result<Taken> take_frame(LinkId id, Link& link, std::string_view bytes);

  boost::asio::io_context& io_;
  const std::unique_ptr<SideLane> lane_;
  const std::chrono::microseconds patience_;
  const Calls calls_;
  boost::asio::posix::stream_descriptor events_;
  bool listens_ = false, soon_ = false;
  std::unordered_map<LinkId, std::unique_ptr<Link>> links_;
  std::unordered_map<std::string, Clock::time_point> off_until_;  // by peer
  Clock::time_point wrong_until_{};                               // for all
  std::vector<LaneEvent> come_;
};

}  // namespace deepinfer
