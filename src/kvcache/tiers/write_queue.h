// kvcache/tiers/write_queue.h - a few writes of one file under way at once (io_uring), oldest first.
//
// The disk works on one run of records while the checksums of the next are computed. Where the system has no io_uring, or a
// container refuses it, open() gives null and the caller writes as ever. Promise: destroying it waits for what is under way.
// Threads: one at a time.
//
//   auto queue = WriteQueue::open();                        // null: not here
//   queue->start(fd, offset, parts);                        // REQUIRES: !full(); parts stay as they are until taken
//   WriteQueue::Done done = queue->take();                  // the oldest
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace deepinfer {

class WriteQueue {
 public:
  static constexpr size_t kMost = 2, kMostParts = 64;
  struct Done {
    int64_t offset = 0;
    std::span<const iovec> parts;  // valid until the next start()
    bool whole = false;            // else nothing is known of what was written
  };

  static std::unique_ptr<WriteQueue> open();
  ~WriteQueue();
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  size_t under_way() const { return begun_ - taken_; }
  bool full() const { return under_way() == kMost; }
  // REQUIRES: at most kMostParts.
  void start(int fd, int64_t offset, std::span<const std::span<const uint8_t>> parts);
  // REQUIRES: something is under way.
  Done take();

 private:
  struct Write {
    std::array<iovec, kMostParts> parts;
    size_t count = 0;
    int64_t offset = 0, bytes = 0, result = 0;
    bool over = false;
  };
  WriteQueue() = default;
  Write& at(size_t number) { return writes_[number % kMost]; }

  io_uring ring_{};
  std::array<Write, kMost> writes_;
  size_t begun_ = 0, taken_ = 0;
};

}  // namespace deepinfer
