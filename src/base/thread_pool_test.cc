#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace deepinfer {
namespace {

TEST(ThreadPool, EveryItemOnceAndScratchUnshared) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<int> hits(100), users(static_cast<size_t>(threads));
    for (int call = 1; call <= 2000; ++call) {
      const int64_t count = call % 101;
      std::fill(users.begin(), users.end(), 0);
      pool.run(
          count,
          [&](int64_t begin, int64_t end, int worker) {
            ++users[static_cast<size_t>(worker)];
            for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
          },
          1 + call % 7);
      for (const int uses : users) ASSERT_LE(uses, 1);
    }
    // Item i is part of every call with count > i.
    for (int i = 0; i < 100; ++i) {
      int expected = 0;
      for (int call = 1; call <= 2000; ++call) expected += call % 101 > i;
      ASSERT_EQ(hits[static_cast<size_t>(i)], expected) << threads << " threads, item " << i;
    }
  }
}

TEST(ThreadPool, SumsAfterParking) {
  ThreadPool pool(4);
  for (int round = 0; round < 5; ++round) {
    std::vector<int64_t> sums(4);
    pool.run(1000, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(worker)] += i;
    });
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 499500);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than workers spin
  }
}

}  // namespace
}  // namespace deepinfer
