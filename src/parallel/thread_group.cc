#include "parallel/thread_group.h"

#include <cstring>

#include "base/machine.h"
#include "base/spin.h"

namespace deepinfer {

ThreadGroup::ThreadGroup(int32_t size) : spins_(size <= available_processors()), shown_(static_cast<size_t>(size)) {}

void ThreadGroup::meet() {
  const uint32_t before = meetings_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(before + 1, std::memory_order_release);
    meetings_.notify_all();
    return;
  }
  // Whoever waits longer parks at once, without offering its processor first: on a busy machine a yield is a whole time slice
  // lost, while a thread that is woken runs soon (a test of 8 ranks on 2 busy processors took ten times as long with yields).
  const auto have_met = [&] { return meetings_.load(std::memory_order_acquire) != before; };
  if (spins_ && spin_until(have_met, kYieldAfter)) return;
  while (!have_met()) meetings_.wait(before, std::memory_order_acquire);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int32_t rank) : group_(group), rank_(rank) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_.size(); }

  void all_gather(Device& device, std::span<const Gather> gathers) override {
    std::array<Gather, kMostGathers> seen;
    DI_CHECK(gathers.size() <= seen.size());
    for (size_t i = 0; i < gathers.size(); ++i)
      seen[i] = {address(device, gathers[i].send), address(device, gathers[i].recv), gathers[i].bytes};
    in_order(device, [this, seen] { gather(seen); });
  }

  void all_to_all(Device& device, const void* send, void* recv, int64_t bytes_per_rank) override {
    in_order(device, [this, from = address(device, send), to = address(device, recv), bytes_per_rank] {
      show({from});
      for (int32_t peer = 0; peer < size(); ++peer) {
        std::memcpy(to + peer * bytes_per_rank, shown(peer)[0] + rank_ * bytes_per_rank, static_cast<size_t>(bytes_per_rank));
      }
      ++call_;
    });
  }

 private:
  // Where the host has waited for all that was enqueued, there is no need to make a function of it (which allocates).
  template <class Call>
  static void in_order(Device& device, const Call& call) {
    if (!device.runs_beside_host()) return call();
    device.host_call(call);
  }
  static uint8_t* address(Device& device, const void* pointer) {
    return static_cast<uint8_t*>(device.translate(const_cast<void*>(pointer)));
  }
  const ThreadGroup::Pointers& shown(int32_t peer) const { return group_.shown_[static_cast<size_t>(peer)].of_call[call_ % 2]; }
  void show(const ThreadGroup::Pointers& pointers) {
    group_.shown_[static_cast<size_t>(rank_)].of_call[call_ % 2] = pointers;
    group_.meet();
  }
  void gather(const std::array<Gather, kMostGathers>& gathers) {
    ThreadGroup::Pointers mine{};
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<const uint8_t*>(gathers[i].send);
    show(mine);
    for (int32_t peer = 0; peer < size(); ++peer) {
      for (size_t i = 0; i < gathers.size(); ++i) {
        const auto bytes = static_cast<size_t>(gathers[i].bytes);
        if (bytes > 0)
          std::memcpy(static_cast<uint8_t*>(gathers[i].recv) + static_cast<size_t>(peer) * bytes, shown(peer)[i], bytes);
      }
    }
    ++call_;
  }

  ThreadGroup& group_;
  const int32_t rank_;
  uint32_t call_ = 0;
};

std::unique_ptr<Communicator> ThreadGroup::join(int32_t rank) { return std::make_unique<ThreadCommunicator>(*this, rank); }

}  // namespace deepinfer
