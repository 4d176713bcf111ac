#include "lab/measure_machine.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "cpu/cpu_device.h"

namespace deepinfer {
// Huge pages, eight sums a thread, and asking 2 KB ahead: with one sum and small pages the loop, not the memory, was measured
// (0.6 of this), without asking ahead 0.8.
double measure_read_bandwidth(int threads, MeasureEffort effort) {
  using Words = uint64_t __attribute__((vector_size(32)));
  const int64_t bytes = int64_t{1} << (effort.quick ? 29 : 30);
  constexpr int64_t kSums = 8, kAhead = 2048;
  const int64_t blocks = bytes / static_cast<int64_t>(sizeof(Words)) / kSums;
  HugePageAllocator<Words> memory;
  Words* const words = memory.allocate(static_cast<size_t>(blocks * kSums));
  ThreadPool pool(threads);
  // Touching them takes longer than all else: two seconds a GB on some machines.
  pool.run(blocks, [&](int64_t from, int64_t to, int) {
    std::fill(words + from * kSums, words + to * kSums, Words{1, 1, 1, 1});
  });
  std::vector<uint64_t> seen(static_cast<size_t>(pool.size()) * 8);
  double best = 0;
  for (int repeat = 0; repeat < effort.repeats(); ++repeat) {
    const double begin = now_seconds();
    pool.run(blocks, [&](int64_t from, int64_t to, int worker) {
      Words sums[kSums] = {};
      for (int64_t block = from; block < to; ++block) {
        const Words* at = words + block * kSums;
        for (int64_t line = 0; line < 256; line += 64) __builtin_prefetch(reinterpret_cast<const char*>(at) + kAhead + line);
        for (int64_t i = 0; i < kSums; ++i) sums[i] += at[i];
      }
      for (const Words& sum : sums) seen[static_cast<size_t>(worker) * 8] += sum[0] + sum[1] + sum[2] + sum[3];
    });
    best = std::max(best, static_cast<double>(bytes) / (now_seconds() - begin));
  }
  memory.deallocate(words, static_cast<size_t>(blocks * kSums));
  return best;
}

double measure_barrier(int threads) {
  constexpr int kCalls = 2000;
  ThreadPool pool(threads);
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double begin = now_seconds();
    // Each part waits for all: a caller that is quicker than a worker would do its part, too.
    for (int i = 0; i < kCalls; ++i) {
      std::atomic<int> missing = pool.size();
      pool.run(pool.size(), [&](int64_t, int64_t, int) {
        --missing;
        for (int spins = 0; missing.load() > 0; ++spins) {
          if (spins > 1000) std::this_thread::yield();
        }
      });
    }
    best = std::min(best, (now_seconds() - begin) / kCalls);
  }
  return pool.size() > 1 ? best : 0;
}

// Past the caches, as a checkpoint that does not fit them is read, several reads under way: one at a time leaves a disk idle
// between them. A file system that refuses that reads what it was told to forget.
double measure_disk_read(const Checkpoint& checkpoint) {
  constexpr int64_t kPiece = int64_t{4} << 20, kMost = int64_t{512} << 20;
  constexpr int kReaders = 4;
  if (checkpoint.shards().empty()) return 0;
  const std::string& path = checkpoint.shards()[0].path();
  const auto read = [&](int flags) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
    if (file < 0) return 0.0;
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    std::atomic<int64_t> next = 0, done = 0;
    const auto pieces = [&] {
      HugeVector<char> room(kPiece);
      for (int64_t at = next.fetch_add(kPiece); at < kMost; at = next.fetch_add(kPiece)) {
        const ssize_t got = ::pread(file, room.data(), kPiece, at);
        if (got <= 0) return;
        done += got;
      }
    };
    const double begin = now_seconds();
    {
      std::vector<std::jthread> readers;
      for (int i = 0; i < kReaders; ++i) readers.emplace_back(pieces);
    }
    const double took = now_seconds() - begin;
    ::close(file);
    return static_cast<double>(done) / took;
  };
  const double direct = read(O_DIRECT);
  return direct > 0 ? direct : read(0);
}

Hardware measure_processor(const std::string& isa, int threads, MeasureEffort effort) {
  const auto products = [&](WeightFormat format) { return 2 * measure_multiply_adds(isa, threads, format, effort.repeats()); };
  Hardware out = unmeasured_processor();
  out.source = "measured now";
  out.read = measure_read_bandwidth(threads, effort);
  out.fp4 = products(WeightFormat::kFp4);
  out.fp8 = out.wide = products(WeightFormat::kF8Tile);
  out.barrier = measure_barrier(threads);
  return out;
}

Hardware unmeasured_processor() {
  return {.name = "this machine",
          .source = "not measured",
          .reached_source = "bench ops on two AVX-512 cores: one row 0.94 of reading, 64 and 512 rows 0.64 to 0.76 of the unit",
          .processor = true,
          .memory_bytes = static_cast<double>(std::max<int64_t>(0, available_memory())),
          .reached_read = 0.94,
          .reached_products = 0.66};
}

}  // namespace deepinfer
