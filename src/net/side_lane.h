// net/side_lane.h - bytes from one process's memory into another's, past the network's stack: through UCX.
//
// Bytes go between processes of one machine by shared memory, between machines by RDMA; UCX_TLS names other transports (UCX's own
// variables are UCX's to read). A lane carries no order and proves nobody: keys and addresses are told over a link that does both
// (frame_lane.h), and what comes without a key that was given out is dropped. Promise: a peer that dies or leaves breaks its
// own link's part, as an event, and nothing else (that one hangs is for who waits to find); the memory of bytes stays until the
// other side has them or is given up. Threads: one at a time. The library is loaded by open(), so a program that needs no lane
// never sees it.
//
//   DI_TRY(auto lane, SideLane::open(64 << 20));
//   lane->expect(link, key);                   // ours, told to the peer with address()
//   DI_CHECK_OK(lane->join(link, their_address, their_key));
//   lane->send(link, 1, std::move(bytes), 0);
//   while (lane->turn(events)) {}              // then wait until handle() can be read
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct LaneBytes {
  std::unique_ptr<uint8_t[]> data;
  size_t size = 0;
};

struct LaneEvent {
  enum class Kind : uint8_t { kCame, kSent, kBroke };
  Kind kind = Kind::kCame;
  uint64_t link = 0;
  LaneBytes bytes{};    // kCame
  uint64_t number = 0;  // kCame, kSent
  std::string why{};    // kBroke
};

class SideLane {
 public:
  static constexpr size_t kKeyBytes = 16;
  // Errors: built without UCX, no library, no transport. `max_bytes`: of one send that is taken.
  static Result<std::unique_ptr<SideLane>> open(size_t max_bytes);
  virtual ~SideLane() = default;

  virtual std::string_view address() const = 0;
  virtual void expect(uint64_t link, const std::string& key) = 0;
  // Errors: no transport leads there.
  virtual Status join(uint64_t link, std::string_view address, const std::string& key) = 0;
  // `bytes` behind its first `skip`. REQUIRES: joined.
  virtual void send(uint64_t link, uint64_t number, std::string bytes, size_t skip) = 0;
  virtual void leave(uint64_t link) = 0;
  virtual int handle() const = 0;
  // Does what there is to do; false: nothing more until handle() can be read.
  virtual bool turn(std::vector<LaneEvent>& events) = 0;
};

// The library's version, or why no lane can be opened.
Result<std::string> side_lane_version();

}  // namespace deepinfer
