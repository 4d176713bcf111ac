// engine/inbox.h - what other threads tell the engine, in order.
//
// One queue for all kinds of message, so a cancel never overtakes the submit it belongs to.
// Threads: push() from any thread; take(), wait() and wait_for() from the engine's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/sequence.h"

namespace deepinfer {

struct InboxMessage {
  enum class Kind { kSubmit, kCancel, kFinish };
  Kind kind = Kind::kSubmit;
  RequestId id = 0;
  int64_t last_index = 0;              // kFinish
  std::unique_ptr<Sequence> sequence;  // kSubmit
};

class Inbox {
 public:
  // False once closed; `message` is untouched then.
  bool push(InboxMessage&& message) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    messages_.push_back(std::move(message));
    ready_.notify_one();
    return true;
  }

  // Swaps the messages so far into `out`, which keeps its capacity.
  void take(std::vector<InboxMessage>& out) {
    out.clear();
    const std::lock_guard lock(mutex_);
    messages_.swap(out);
  }

  // Returns when there is a message or the inbox is closed.
  void wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !messages_.empty(); });
  }

  // The same, but no longer than `us`.
  void wait_for(int64_t us) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, std::chrono::microseconds(us), [&] { return closed_ || !messages_.empty(); });
  }

  bool closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ready_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<InboxMessage> messages_;
  bool closed_ = false;
};

}  // namespace deepinfer
