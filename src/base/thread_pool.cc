#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/machine.h"
#include "base/spin.h"

namespace deepinfer {
namespace {

void bind(std::thread& thread, const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  ::pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

int64_t part_begin(int64_t count, int parts, int part) { return count * part / parts; }

}  // namespace

ThreadPool::ThreadPool(int threads)
    : claims_(static_cast<size_t>(std::min(threads <= 0 ? available_processors() : threads, (1 << kPartsBits) - 1))) {
  // Where memory has nodes, neighbouring parts stay on one: pages lie where they are touched first, and what a part packed it
  // multiplies later. Not measured: no machine of ours has two nodes.
  const auto nodes = processor_nodes("/sys/devices/system/node");
  for (size_t i = 1; i < claims_.size(); ++i) {
    workers_.emplace_back([this, i] { work(static_cast<int>(i)); });
    if (nodes.size() > 1) bind(workers_.back(), nodes[node_of_part(nodes, i, claims_.size())]);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wakes_.fetch_add(1);
  wakes_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Body body, int64_t grain) {
  if (count <= 0) return;
  const int parts = static_cast<int>(std::min<int64_t>(size(), std::max<int64_t>(1, count / std::max<int64_t>(1, grain))));
  if (parts == 1) {
    body(0, count, 0);
    return;
  }
  body_ = &body;
  count_ = count;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t call = ((call_.load(std::memory_order_relaxed) >> kPartsBits) + 1) << kPartsBits | static_cast<uint64_t>(parts);
  call_.store(call);
  if (parked_.load() > 0) {
    wakes_.fetch_add(1);
    wakes_.notify_all();
  }
  int mine = 0;
  for (int part = 0; part < parts; ++part) mine += try_part(call, part);
  const auto done = [&] { return done_.load(std::memory_order_acquire) == parts - mine; };
  while (!spin_until(done)) std::this_thread::yield();
}

bool ThreadPool::try_part(uint64_t call, int part) {
  auto& claim = claims_[static_cast<size_t>(part)].call;
  uint64_t last = claim.load(std::memory_order_relaxed);
  if (last >= call || !claim.compare_exchange_strong(last, call, std::memory_order_acq_rel)) return false;
  const int parts = static_cast<int>(call & ((1 << kPartsBits) - 1));
  (*body_)(part_begin(count_, parts, part), part_begin(count_, parts, part + 1), part);
  return true;
}

void ThreadPool::wait_for_call(uint64_t seen) {
  const auto changed = [&] { return call_.load() != seen || stop_.load(std::memory_order_relaxed); };
  if (spin_until(changed)) return;
  parked_.fetch_add(1);
  // A call that comes after this look finds parked_ > 0 and moves wakes_.
  const uint32_t wakes = wakes_.load();
  if (!changed()) wakes_.wait(wakes);
  parked_.fetch_sub(1);
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;
  while (!stop_.load()) {
    const uint64_t call = call_.load();
    if (call == seen) {
      wait_for_call(seen);
      continue;
    }
    seen = call;
    const int parts = static_cast<int>(call & ((1 << kPartsBits) - 1));
    if (worker < parts && try_part(call, worker)) done_.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace deepinfer
