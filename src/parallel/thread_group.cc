#include "parallel/thread_group.h"

#include <cstring>

namespace deepinfer {

template <class Copy>
void ThreadGroup::exchange(int32_t rank, const uint8_t* send, Copy copy) {
  published_[static_cast<size_t>(rank)] = send;
  barrier_.arrive_and_wait();
  for (int32_t peer = 0; peer < size(); ++peer) copy(peer, published_[static_cast<size_t>(peer)]);
  barrier_.arrive_and_wait();
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int32_t rank) : group_(group), rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_.size(); }

  void all_gather(Device& device, const void* send, void* recv, int64_t bytes) override {
    device.host_call([this, from = seen(device, send), to = seen(device, recv), bytes] {
      group_.exchange(rank_, from, [&](int32_t peer, const uint8_t* data) {
        std::memcpy(to + peer * bytes, data, static_cast<size_t>(bytes));
      });
    });
  }

  void all_to_all(Device& device, const void* send, void* recv, int64_t bytes_per_rank) override {
    device.host_call([this, from = seen(device, send), to = seen(device, recv), bytes_per_rank] {
      group_.exchange(rank_, from, [&](int32_t peer, const uint8_t* data) {
        std::memcpy(to + peer * bytes_per_rank, data + rank_ * bytes_per_rank, static_cast<size_t>(bytes_per_rank));
      });
    });
  }

 private:
  static uint8_t* seen(Device& device, const void* pointer) {
    return static_cast<uint8_t*>(device.translate(const_cast<void*>(pointer)));
  }

  ThreadGroup& group_;
  int32_t rank_;
};

std::unique_ptr<Communicator> ThreadGroup::join(int32_t rank) { return std::make_unique<ThreadCommunicator>(*this, rank); }

}  // namespace deepinfer
