#include "kvcache/tiers/page_locations.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace deepinfer {
namespace {

PageKey key_of(uint64_t number) { return {number * 0x9e3779b97f4a7c15u, number}; }

TEST(PageLocations, AgreesWithAMapUnderAnyMoves) {
  EXPECT_TRUE(rc::check("insert, replace, erase", [](const std::vector<uint16_t>& moves) {
    PageLocations locations;
    std::map<uint64_t, PageLocation> model;
    const auto is_live = [](uint32_t) { return true; };
    for (const uint16_t move : moves) {
      // Few homes, so that runs of taken slots are long and wrap around.
      const uint64_t number = move % 89;
      const PageKey key{number % 5 == 0 ? 63 : number % 7, number};
      const PageLocation at{move / 89u % 4u, move};
      if (move % 3 != 0) {
        locations.insert(key, at, is_live);
        model[number] = at;
      } else if (model.contains(number)) {
        locations.erase(key, model[number]);
        model.erase(number);
      }
    }
    for (uint64_t number = 0; number < 89; ++number) {
      const PageLocation* found = locations.find({number % 5 == 0 ? 63 : number % 7, number});
      RC_ASSERT((found != nullptr) == model.contains(number));
      if (found) RC_ASSERT(*found == model[number]);
    }
  }));
}

TEST(PageLocations, ThoseOfDeadSegmentsLeaveWhenRoomIsNeeded) {
  PageLocations locations;
  size_t most = 0;
  for (uint32_t segment = 0; segment < 100; ++segment) {
    for (uint64_t i = 0; i < 100; ++i)
      locations.insert(key_of(segment * 100 + i), {segment, 0}, [&](uint32_t s) { return s + 3 > segment; });
    most = std::max(most, locations.memory_bytes());
  }
  EXPECT_LE(most, 1024u * 24);
  for (uint64_t i = 98 * 100; i < 100 * 100; ++i) EXPECT_NE(locations.find(key_of(i)), nullptr);
}

TEST(PageLocations, APageTakesAtMost120BytesWhileTheTableGrowsToo) {
  PageLocations locations;
  double most = 0;
  constexpr uint64_t kPages = 1'000'000;
  for (uint64_t i = 0; i < kPages; ++i) {
    const size_t before = locations.peak_memory_bytes();
    locations.insert(key_of(i), {static_cast<uint32_t>(i / 4'000), static_cast<uint32_t>(i)}, [](uint32_t) { return true; });
    const size_t bytes =
        std::max(locations.memory_bytes(), before == locations.peak_memory_bytes() ? 0 : locations.peak_memory_bytes());
    if (i > 1'000) most = std::max(most, static_cast<double>(bytes) / static_cast<double>(i + 1));
  }
  RecordProperty("most_bytes_a_page", std::to_string(most));
  RecordProperty("bytes_a_page_at_a_million", std::to_string(static_cast<double>(locations.memory_bytes()) / kPages));
  EXPECT_LE(most, 120.0);
  EXPECT_EQ(locations.size(), kPages);
}

}  // namespace
}  // namespace deepinfer
