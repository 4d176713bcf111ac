#include "kvcache/fleet_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace deepinfer {
namespace {

// Few different low halves: keys collide and chains of slots are long.
PageKey key(uint64_t n) { return {n % 7 + (n << 20), n}; }

std::vector<PageKey> keys(uint64_t from, uint64_t to) {
  std::vector<PageKey> out;
  for (uint64_t n = from; n < to; ++n) out.push_back(key(n));
  return out;
}

TEST(FleetIndex, HeldPrefixesOfEveryWorker) {
  FleetIndex fleet(130);
  fleet.add(0, keys(0, 10));
  fleet.add(64, keys(0, 4));
  fleet.add(64, keys(5, 10));
  fleet.add(129, keys(1, 10));
  std::vector<int32_t> held(130, -1);
  fleet.match(keys(0, 12), held);
  EXPECT_EQ(held[0], 10);
  EXPECT_EQ(held[64], 4);
  EXPECT_EQ(held[129], 0);
  EXPECT_EQ(held[1], 0);
  EXPECT_EQ(fleet.num_pages(), 10);
}

// Against a plain set of pairs, through growth, removal and workers that leave.
RC_GTEST_PROP(FleetIndexProperty, EqualsASetOfPairs, ()) {
  FleetIndex fleet(70);
  std::set<std::pair<int32_t, uint64_t>> model;
  const int32_t steps = *rc::gen::inRange(1, 60);
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t worker = *rc::gen::inRange(0, 70);
    const uint64_t from = *rc::gen::inRange<uint64_t>(0, 2'000), to = from + *rc::gen::inRange<uint64_t>(0, 400);
    const int32_t what = *rc::gen::inRange(0, 8);
    if (what < 5) {
      what < 3 ? fleet.add(worker, keys(from, to)) : fleet.promise(worker, keys(from, to));
      for (uint64_t n = from; n < to; ++n) model.emplace(worker, n);
    } else if (what < 7) {
      fleet.remove(worker, keys(from, to));
      fleet.withdraw(worker, keys(from, to));
      for (uint64_t n = from; n < to; ++n) model.erase({worker, n});
    } else {
      fleet.clear(worker);
      std::erase_if(model, [&](const auto& pair) { return pair.first == worker; });
    }
  }
  std::set<uint64_t> pages;
  for (const auto& pair : model) pages.insert(pair.second);
  RC_ASSERT(fleet.num_pages() == static_cast<int64_t>(pages.size()));
  std::vector<int32_t> held(70);
  const uint64_t from = *rc::gen::inRange<uint64_t>(0, 2'000);
  fleet.match(keys(from, from + 300), held);
  for (int32_t worker = 0; worker < 70; ++worker) {
    int32_t depth = 0;
    while (depth < 300 && model.contains({worker, from + static_cast<uint64_t>(depth)})) ++depth;
    RC_ASSERT(held[static_cast<size_t>(worker)] == depth);
  }
}

}  // namespace
}  // namespace deepinfer
