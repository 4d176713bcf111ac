// parallel/thread_group.h - ranks that are threads of this process.
//
//   ThreadGroup group(4);
//   // in thread r: auto communicator = group.join(r); ... model with communicator.get()
#pragma once

#include <barrier>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace deepinfer {

// The meeting place of `size` rank threads. Must outlive its communicators.
class ThreadGroup {
 public:
  explicit ThreadGroup(int32_t size) : barrier_(size), published_(static_cast<size_t>(size)) {}

  int32_t size() const { return static_cast<int32_t>(published_.size()); }
  std::unique_ptr<Communicator> join(int32_t rank);

 private:
  friend class ThreadCommunicator;
  // Every rank shows its buffer, copies from all others, and waits until all have copied.
  template <class Copy>
  void exchange(int32_t rank, const uint8_t* send, Copy copy);

  std::barrier<> barrier_;
  std::vector<const uint8_t*> published_;
};

}  // namespace deepinfer
