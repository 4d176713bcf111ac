// parallel/thread_group.h - ranks that are threads of this process.
//
//   ThreadGroup group(4);
//   // in thread r: auto communicator = group.join(r); ... model with communicator.get()
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace deepinfer {

// The meeting place of `size` rank threads. Must outlive its communicators.
class ThreadGroup {
 public:
  explicit ThreadGroup(int32_t size);

  int32_t size() const { return static_cast<int32_t>(shown_.size()); }
  std::unique_ptr<Communicator> join(int32_t rank);

 private:
  friend class ThreadCommunicator;
  using Pointers = std::array<const uint8_t*, Communicator::kMostGathers>;
  // What a rank shows of two calls in turn: when all have come to a call, all have read what was shown of the one before the
  // last.
  struct alignas(64) Shown {
    std::array<Pointers, 2> of_call;
  };
  // Returns when all ranks have called it so many times.
  void meet();

  const bool spins_;  // before it parks
  std::vector<Shown> shown_;
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> meetings_{0};
};

}  // namespace deepinfer
