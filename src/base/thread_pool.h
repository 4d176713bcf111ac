// base/thread_pool.h - the compute threads of one device or rank.
//
// run() cuts [0, count) into one contiguous part per thread and returns when all are done; the caller works, too. The cut
// depends on count, grain and size() only. Each worker looks after its own part; what a worker has not begun when the caller
// is through with its own, the caller does, so a worker without a processor delays nobody. `worker` is the part's number:
// no two bodies of one call share it. Between calls workers spin for some microseconds (a decode step is hundreds of short
// calls), then park.
// Promise: no allocation and no lock in run() while the workers spin; parking and waking are the only system calls.
// Threads: run() from one thread at a time; it does not nest. Bodies must not throw.
//
//   pool.run(rows, [&](int64_t begin, int64_t end, int worker) { for (int64_t r = begin; r < end; ++r) ...; });
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace deepinfer {

class ThreadPool {
 public:
  using Body = FunctionRef<void(int64_t begin, int64_t end, int worker)>;

  // threads <= 0 takes available_processors().
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  // `grain`: a thread gets at least that many items, so short calls stay on few threads.
  void run(int64_t count, Body body, int64_t grain = 1);
  // How many calls more than one thread had a part in. Any thread.
  int64_t shared_calls() const { return static_cast<int64_t>(call_.load(std::memory_order_relaxed) >> kPartsBits); }

 private:
  // The call on which a part was last begun. Calls only grow, so a thread late from an old call finds its part taken.
  struct alignas(64) Claim {
    std::atomic<uint64_t> call{0};
  };
  static constexpr int kPartsBits = 16;  // of call_: number of the call, then its parts

  void work(int worker);
  // Runs a part of the call unless somebody has begun it.
  bool try_part(uint64_t call, int part);
  void wait_for_call(uint64_t seen);

  std::vector<Claim> claims_;
  // The current call; written by run() before `call_` moves on.
  const Body* body_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<uint64_t> call_{0};
  alignas(64) std::atomic<int> done_{0};  // parts finished by workers
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<uint32_t> wakes_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
