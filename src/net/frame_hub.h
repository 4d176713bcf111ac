// net/frame_hub.h - messages between processes that trust each other's secret: typed frames over TCP, large ones over UCX.
//
// A hub has one thread, listens if asked to, and keeps any number of links, its own and accepted ones. A frame is a type and
// bytes. Before the first frame both sides prove by HMAC-SHA-256 over fresh random numbers that they know the secret; the secret
// itself never travels. With certificates all of it runs inside TLS, and both sides must have one of the given authority;
// without, what follows the proof is neither encrypted nor signed: use it within a network you trust, or inside a tunnel.
// Promise: frames arrive whole and in order or the link is closed; opened() comes before the first frame of a link, closed()
// exactly once and last, also for a connection that never came about; a peer that sends nonsense or does not read loses its link
// and nothing else; send() never blocks. Whether a peer is still awake is for its messages to say. Threads: every method from any
// thread; the handlers run on the hub's. They may call any method but the destructor.
//
//   auto hub = FrameHub::open({.security = {.secret = secret}}, handlers);
//   const LinkId link = (*hub)->connect("10.0.0.7", 8101);
//   (*hub)->send(link, kHello, bytes);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/side_lane.h"

namespace deepinfer {

using LinkId = uint64_t;

struct LinkSecurity {
  std::string secret;
  // PEM files, all or none. Whoever has a certificate of that authority belongs to the cluster: it must sign for nobody else.
  std::string certificate, key, ca;

  bool is_tls() const { return !certificate.empty(); }
  bool is_any() const { return is_tls() || !secret.empty(); }
};

// Whether large frames go beside their connections (frame_lane.h): where both sides can, never under TLS, of which a lane has
// nothing; or wherever both can, and open() fails if this side cannot.
enum class FrameLanes : uint8_t { kNone, kAuto, kAlways };

struct FrameHubOptions {
  LinkSecurity security;
  std::string address;  // to listen on; "" = does not listen
  uint16_t port = 0;    // 0 = any free one
  size_t max_frame_bytes = size_t{256} << 20;
  size_t max_unsent_bytes = size_t{512} << 20;  // of one link
  int64_t handshake_us = 5'000'000;
  FrameLanes lane = FrameLanes::kNone;
  int64_t lane_us = 1'000'000;  // a link whose lane is later than this behind its connection is closed
};

struct FrameHandlers {
  std::function<void(LinkId)> opened;
  std::function<void(LinkId, uint8_t type, std::string_view bytes)> frame;
  std::function<void(LinkId, const Error& why)> closed;
  // In frame()'s place, of one that came beside its connection: its bytes are for keeping.
  std::function<void(LinkId, uint8_t type, LaneBytes bytes)> kept;
  // Behind the frames that came together.
  std::function<void()> settled;
};

class FrameHub {
 public:
  // Errors: the address cannot be listened on, a file does not hold what it should.
  static Result<std::unique_ptr<FrameHub>> open(const FrameHubOptions& options, FrameHandlers handlers);
  virtual ~FrameHub() = default;  // closes everything without calling handlers

  virtual uint16_t port() const = 0;
  virtual LinkId connect(const std::string& host, uint16_t port) = 0;
  // To a link that is closed: nothing happens.
  virtual void send(LinkId link, uint8_t type, std::string_view bytes) = 0;
  // closed() gets `why`.
  virtual void close(LinkId link, Error why) = 0;
  // Of large frames: "" when they are to stay on their connections; else by what they go beside them, or why they do not.
  virtual std::string lane() const = 0;
  // Whether a frame of so many bytes would go beside it now, and so be verified by a checksum. On the hub's thread.
  virtual bool is_beside(LinkId link, size_t bytes) const = 0;
  // Calls `work` on the hub's thread, now or after a while.
  virtual void post(std::function<void()> work) = 0;
  virtual void after(int64_t us, std::function<void()> work) = 0;
};

}  // namespace deepinfer
