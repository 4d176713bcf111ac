#include "kvcache/tiers/segment_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

constexpr int64_t kDay = 86'400;

class SegmentStoreTest : public testing::Test {
 protected:
  std::unique_ptr<SegmentStore> open() { return must_open(disk_, clock_, test_store_options("kv")); }
  void wait_s(int64_t seconds) { clock_.advance_us(seconds * 1'000'000); }
  int64_t segments_of(const std::string& part) const {
    const auto paths = disk_.paths();
    return std::count_if(paths.begin(), paths.end(),
                         [&](const std::string& path) { return path.find(part) != std::string::npos; });
  }

  MemoryDisk disk_;
  ManualClock clock_;
};

TEST_F(SegmentStoreTest, APageIsReadAndFoundAgainAfterARestart) {
  const TestPage page(1), snapshot(1, RecordKind::kSnapshot, 30'000);
  for (int life = 0; life < 3; ++life) {
    const auto store = open();
    EXPECT_EQ(find_page(*store, page), life == 0 ? Found::kMiss : Found::kExact);
    ASSERT_TRUE(put_page(*store, page));
    ASSERT_TRUE(put_page(*store, snapshot));
    EXPECT_EQ(find_page(*store, page), Found::kExact);
    EXPECT_EQ(find_page(*store, snapshot), Found::kExact);
    EXPECT_EQ(store->stats().written_records, life == 0 ? 2 : 0);
  }
  EXPECT_EQ(segments_of(".seg"), 1);
  const auto sealed = open();
  EXPECT_EQ(sealed->match(std::vector{page.key, TestPage(2).key}), 1u);
}

TEST_F(SegmentStoreTest, AnotherTenantTokenOrParentUnderTheSameKeyIsAMiss) {
  const auto store = open();
  const TestPage page(4);
  ASSERT_TRUE(put_page(*store, page));
  std::vector<uint8_t> payload(kTestPageBytes, 9);
  RecordView tenant = page.record(), parent = tenant, tokens = tenant;
  tenant.tenant ^= 1;
  parent.parent.high ^= 1;
  auto others = page.tokens;
  others.back() += 1;
  tokens.tokens = others;
  for (const RecordView& wanted : {tenant, parent, tokens}) EXPECT_EQ(store->read(wanted, payload), StoreRead::kMiss);
  EXPECT_EQ(payload, std::vector<uint8_t>(kTestPageBytes, 9));
  EXPECT_EQ(store->stats().wrong_records, 3);
  EXPECT_EQ(find_page(*store, page), Found::kExact);
}

TEST_F(SegmentStoreTest, ManyPagesFillSegmentsAndAllAreFound) {
  std::vector<TestPage> pages;
  for (uint64_t i = 0; i < 200; ++i) pages.emplace_back(i);
  std::vector<RecordView> records;
  for (const TestPage& page : pages) records.push_back(page.record());
  {
    const auto store = open();
    ASSERT_TRUE(store->put(RetentionClass::kAgent, records));
  }
  EXPECT_GE(segments_of("/agent/"), 9);
  const auto store = open();
  for (const TestPage& page : pages) ASSERT_EQ(find_page(*store, page), Found::kExact);
}

TEST_F(SegmentStoreTest, WhatExpiredIsAMissAtOnceAndItsFileIsUnlinked) {
  const auto store = open();
  const TestPage chat(1), agent(2), session(3), pinned(4);
  ASSERT_TRUE(put_page(*store, chat, RetentionClass::kChat));
  ASSERT_TRUE(put_page(*store, agent, RetentionClass::kAgent));
  ASSERT_TRUE(put_page(*store, session, RetentionClass::kSession));
  ASSERT_TRUE(put_page(*store, pinned, RetentionClass::kPinned));
  wait_s(kDay);
  EXPECT_EQ(find_page(*store, session), Found::kMiss);
  EXPECT_EQ(find_page(*store, agent), Found::kExact);
  ASSERT_TRUE(store->refresh());
  EXPECT_EQ(segments_of("/session/"), 0);
  wait_s(7 * kDay);
  EXPECT_EQ(find_page(*store, agent), Found::kMiss);
  EXPECT_EQ(find_page(*store, chat), Found::kMiss);  // closed after 1/8 of 7 days
  EXPECT_EQ(find_page(*store, pinned), Found::kExact);
  ASSERT_TRUE(store->refresh());
  EXPECT_EQ(segments_of(".seg"), 1);
}

TEST_F(SegmentStoreTest, APageReadLateInItsLifeIsWrittenAgain) {
  const auto store = open();
  const TestPage page(1);
  ASSERT_TRUE(put_page(*store, page));
  wait_s(5 * kDay);
  EXPECT_EQ(find_page(*store, page), Found::kExact);
  wait_s(kDay + kDay / 2);
  EXPECT_EQ(find_page(*store, page), Found::kAgeing);
  ASSERT_TRUE(put_page(*store, page));
  wait_s(3 * kDay);
  EXPECT_EQ(find_page(*store, page), Found::kExact);
  EXPECT_EQ(store->stats().written_records, 2);
}

TEST_F(SegmentStoreTest, ALongerClassWritesAgainAShorterOneDoesNot) {
  const auto store = open();
  const TestPage page(1);
  ASSERT_TRUE(put_page(*store, page, RetentionClass::kSession));
  ASSERT_TRUE(put_page(*store, page, RetentionClass::kChat));
  ASSERT_TRUE(put_page(*store, page, RetentionClass::kAgent));
  EXPECT_EQ(store->stats().written_records, 2);
  ASSERT_TRUE(put_page(*store, page, RetentionClass::kPinned));
  ASSERT_TRUE(put_page(*store, page, RetentionClass::kChat));
  EXPECT_EQ(store->stats().written_records, 3);
}

// Two stores of different keys under one limit: the older goes, not the neighbour's.
TEST_F(SegmentStoreTest, ALivingNeighbourIsNoLeftover) {
  constexpr int64_t kLimit = 2 << 20;
  SegmentStoreOptions options = test_store_options("kv", kLimit);
  const auto mine = must_open(disk_, clock_, options);
  options.fingerprint = store_fingerprint("another key");
  auto neighbour = must_open(disk_, clock_, options);
  const auto fill = [&](SegmentStore& store, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) {
      ASSERT_TRUE(put_page(store, TestPage(i)));
      wait_s(1);
    }
  };
  fill(*mine, 0, 150);
  fill(*neighbour, 1'000, 150);
  fill(*mine, 2'000, 150);
  EXPECT_EQ(find_page(*mine, TestPage(0)), Found::kMiss);
  EXPECT_EQ(find_page(*neighbour, TestPage(1'149)), Found::kExact);
  EXPECT_EQ(find_page(*neighbour, TestPage(1'075)), Found::kExact);
  neighbour.reset();  // and is one when it has gone
  const int64_t left = segments_of(folder_name(options.fingerprint));
  fill(*mine, 3'000, 60);
  EXPECT_LT(segments_of(folder_name(options.fingerprint)), left);
  EXPECT_EQ(find_page(*mine, TestPage(2'000)), Found::kExact);
}

TEST_F(SegmentStoreTest, TheLimitHoldsAndTheLeastValuableGoesFirst) {
  constexpr int64_t kLimit = 2 << 20;
  disk_.add("kv/somebody/notes.txt", std::vector<uint8_t>(300'000));
  disk_.add("kv/0123456789abcdef/chat/00000000000000aa-00000001.seg", std::vector<uint8_t>(200'000));
  auto store = must_open(disk_, clock_, test_store_options("kv", kLimit));
  const auto fill = [&](uint64_t first, uint64_t count, RetentionClass retention) {
    for (uint64_t i = first; i < first + count; ++i) {
      ASSERT_TRUE(put_page(*store, TestPage(i), retention));
      ASSERT_LE(disk_.total_bytes(), kLimit);
      wait_s(1);
    }
  };
  fill(0, 60, RetentionClass::kPinned);
  fill(1'000, 60, RetentionClass::kChat);
  fill(2'000, 400, RetentionClass::kAgent);
  EXPECT_EQ(segments_of("0123456789abcdef"), 0);
  EXPECT_EQ(segments_of("notes.txt"), 1);
  store.reset();
  store = must_open(disk_, clock_, test_store_options("kv", kLimit));
  for (uint64_t i = 0; i < 60; ++i) EXPECT_EQ(find_page(*store, TestPage(i)), Found::kExact);
  for (uint64_t i = 1'000; i < 1'060; ++i) EXPECT_EQ(find_page(*store, TestPage(i)), Found::kExact);
  EXPECT_EQ(find_page(*store, TestPage(2'000)), Found::kMiss);
  EXPECT_EQ(find_page(*store, TestPage(2'399)), Found::kExact);
}

TEST_F(SegmentStoreTest, PinsTakeHalfOfTheLimitAtMostAndSayWhy) {
  const auto store = must_open(disk_, clock_, test_store_options("kv", 2 << 20));
  Status last;
  for (uint64_t i = 0; i < 600 && last; ++i) last = put_page(*store, TestPage(i), RetentionClass::kPinned);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, ErrorCode::kTooLarge);
  EXPECT_LE(disk_.total_bytes(), 1 << 20);
  EXPECT_TRUE(put_page(*store, TestPage(9'999)));
}

TEST_F(SegmentStoreTest, TwoStoresShareAFolder) {
  const auto one = open(), two = open();
  const TestPage a(1), b(2), c(3);
  ASSERT_TRUE(put_page(*one, a));
  ASSERT_TRUE(put_page(*two, b));
  ASSERT_TRUE(two->refresh());
  EXPECT_EQ(find_page(*two, a), Found::kExact);
  ASSERT_TRUE(put_page(*one, c));
  EXPECT_EQ(find_page(*two, c), Found::kMiss);
  ASSERT_TRUE(two->refresh());
  EXPECT_EQ(find_page(*two, c), Found::kExact);
  // Nobody sealed what the other still writes.
  ASSERT_TRUE(put_page(*one, TestPage(4)));
  ASSERT_TRUE(one->seal());
  ASSERT_TRUE(one->refresh());
  EXPECT_EQ(find_page(*one, b), Found::kExact);
  EXPECT_EQ(one->stats().corrupt_records + two->stats().corrupt_records, 0);
}

TEST_F(SegmentStoreTest, AnotherModelOrLayoutSeesNothing) {
  ASSERT_TRUE(put_page(*open(), TestPage(1)));
  auto options = test_store_options("kv");
  options.sections[0].layer = 3;
  const auto layout = must_open(disk_, clock_, options);
  EXPECT_EQ(find_page(*layout, TestPage(1)), Found::kMiss);
  EXPECT_EQ(layout->stats().corrupt_segments, 1);
  options = test_store_options("kv");
  options.fingerprint = store_fingerprint("other");
  EXPECT_EQ(find_page(*must_open(disk_, clock_, options), TestPage(1)), Found::kMiss);
  EXPECT_EQ(find_page(*open(), TestPage(1)), Found::kExact);
}

TEST_F(SegmentStoreTest, RecordsThatCannotBeAreRefused) {
  const auto store = open();
  EXPECT_EQ(put_page(*store, TestPage(1, RecordKind::kPage, 999)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(put_page(*store, TestPage(1, RecordKind::kSnapshot, 200'000)).error().code, ErrorCode::kTooLarge);
  EXPECT_FALSE(SegmentStore::open(disk_, clock_, test_store_options("kv", 1'000)));
}

TEST_F(SegmentStoreTest, ReadersBesideAWriter) {
  const auto store = must_open(disk_, clock_, test_store_options("kv", 4 << 20));
  std::atomic<uint64_t> written = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> readers;
  for (uint64_t r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      for (uint64_t i = r; written < 400; i += 7) {
        if (find_page(*store, TestPage(i % (written + 1))) == Found::kWrong) ++wrong;
      }
    });
  }
  for (; written < 400; ++written) EXPECT_TRUE(put_page(*store, TestPage(written)));
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SegmentStoreOnFiles, PagesComeBackPastThePageCacheAndThroughIt) {
  for (const bool direct : {true, false}) {
    const std::string root = testing::TempDir() + "kv_store_" + std::to_string(direct);
    std::filesystem::remove_all(root);
    PosixDisk disk(direct);
    const DateClock clock;
    for (uint64_t life = 0; life < 2; ++life) {
      const auto store = must_open(disk, clock, test_store_options(root));
      for (uint64_t i = 0; i < 50 && life == 0; ++i) ASSERT_TRUE(put_page(*store, TestPage(i)));
      for (uint64_t i = 0; i < 50; ++i) ASSERT_EQ(find_page(*store, TestPage(i)), Found::kExact);
    }
    std::filesystem::remove_all(root);
  }
}

// A store of an older build, or of another model, ages like our own although nobody needs its room.
TEST(SegmentStores, OtherFingerprintsExpireByAge) {
  MemoryDisk disk;
  ManualClock clock;
  SegmentStoreOptions other = test_store_options("kv");
  other.fingerprint = store_fingerprint("another build");
  {
    const auto store = must_open(disk, clock, other);
    ASSERT_TRUE(put_page(*store, TestPage(1)).ok());
    ASSERT_TRUE(put_page(*store, TestPage(2), RetentionClass::kPinned).ok());
  }
  const auto segments = [&] {
    const auto paths = disk.paths();
    return std::count_if(paths.begin(), paths.end(), [](const std::string& path) { return path.ends_with(".seg"); });
  };
  must_open(disk, clock, test_store_options("kv"));
  EXPECT_EQ(segments(), 2);
  clock.advance_us(int64_t{9} * 86'400 * 1'000'000);
  must_open(disk, clock, test_store_options("kv"));
  EXPECT_EQ(segments(), 1) << "what is pinned stays";
}

TEST(SegmentStores, NeighboursAreReadTogetherAndABadOneCostsItself) {
  MemoryDisk disk;
  ManualClock clock;
  const auto store = must_open(disk, clock, test_store_options("kv"));
  std::vector<TestPage> pages;
  for (uint64_t i = 0; i < 8; ++i) pages.emplace_back(i);
  std::vector<RecordView> records;
  for (const TestPage& page : pages) records.push_back(page.record());
  ASSERT_TRUE(store->put(RetentionClass::kChat, records).ok());
  int64_t reads = 0;
  disk.set_fault([&](std::string_view what, const std::string&) {
    reads += what == "read";
    return Status();
  });
  const auto bytes = static_cast<size_t>(record_bytes(kTestPageTokens, kTestPageBytes));
  BlockBuffer buffer(static_cast<int64_t>(bytes * pages.size()));
  const auto read = [&] {
    for (size_t i = 0; i < records.size(); ++i) {
      records[i].image = buffer.bytes().subspan(i * bytes, bytes);
      records[i].payload = records[i].image.subspan(record_payload_at(kTestPageTokens), kTestPageBytes);
    }
    std::vector<StoreRead> out(records.size());
    store->read(records, out);
    return out;
  };
  EXPECT_EQ(read(), std::vector<StoreRead>(8, StoreRead::kHit));
  EXPECT_EQ(reads, 1);
  for (size_t i = 0; i < pages.size(); ++i)
    EXPECT_TRUE(std::equal(pages[i].payload.begin(), pages[i].payload.end(), records[i].payload.begin())) << i;
  for (const std::string& path : disk.paths()) {
    if (path.ends_with(".seg")) disk.bytes_of(path)[4096 + 3 * bytes + 300] ^= 1;
  }
  std::vector<StoreRead> expected(8, StoreRead::kHit);
  expected[3] = StoreRead::kMiss;
  EXPECT_EQ(read(), expected);
  EXPECT_EQ(store->stats().corrupt_records, 1);
}

}  // namespace
}  // namespace deepinfer
