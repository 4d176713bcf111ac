#include "kvcache/tiers/store_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

const DateClock kDate;
constexpr size_t kSnapshotBytes = 3'000;

class StoreTiers : public testing::Test {
 protected:
  std::unique_ptr<StoreTier> open(int32_t slots = 64, int64_t deadline_us = 60'000'000) {
    StoreTierOptions options{.disk = &disk_, .date = &kDate, .folder = "/store", .fingerprint = "test", .limit_bytes = 64 << 20};
    options.staged_pages = slots;
    options.deadline.base_us = deadline_us;
    KvLayout layout;
    layout.page_tokens = kTestPageTokens, layout.page_bytes = kTestPageBytes;
    auto tier = StoreTier::open(options, layout, kSnapshotBytes, true);
    DI_CHECK(tier.ok());
    return *std::move(tier);
  }
  // Pages of a chain, so that each is the parent of the next.
  static TestPage page(uint64_t number, RecordKind kind = RecordKind::kPage) {
    TestPage out(number, kind, kind == RecordKind::kPage ? kTestPageBytes : kSnapshotBytes);
    out.key = {number + 1, 5}, out.parent = {number, 5}, out.tenant = 9;
    return out;
  }
  static bool stage(StoreTier& tier, const TestPage& page, Ticket ticket = 1) {
    StagingRing::Slot* slot = tier.stage(page.kind);
    if (!slot) return false;
    slot->key = page.key, slot->parent = page.parent, slot->tenant = page.tenant;
    std::copy(page.tokens.begin(), page.tokens.end(), slot->tokens.begin());
    std::copy(page.payload.begin(), page.payload.end(), slot->payload.begin());
    slot->ticket = ticket;
    return true;
  }
  static std::shared_ptr<StoreLoad> load(StoreTier& tier, size_t count) {
    auto wanted = std::make_shared<StoreLoad>();
    wanted->tenant = 9, wanted->pages = count;
    wanted->keys = {page(0).parent};
    for (uint64_t i = 0; i < count; ++i) {
      const TestPage one = page(i);
      wanted->keys.push_back(one.key);
      wanted->tokens.insert(wanted->tokens.end(), one.tokens.begin(), one.tokens.end());
    }
    const TestPage last = page(count - 1);
    wanted->border = static_cast<Position>(count * kTestPageTokens);
    wanted->border_key = last.key, wanted->border_parent = last.parent, wanted->border_tokens = last.tokens;
    auto out = tier.load(std::move(wanted));
    while (!tier.is_over(*out)) std::this_thread::yield();
    return out;
  }

  MemoryDisk disk_;
};

TEST_F(StoreTiers, WhatIsStagedIsBroughtBackByTheNext) {
  {
    const auto tier = open();
    for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(stage(*tier, page(i)));
    ASSERT_TRUE(stage(*tier, page(39, RecordKind::kSnapshot)));
    tier->settle(1, true);
  }
  const auto tier = open();
  const auto come = load(*tier, 40);
  ASSERT_EQ(come->ready(), 40u);
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(std::equal(come->page(i), come->page(i) + kTestPageBytes, page(i).payload.begin()));
  }
  ASSERT_NE(come->snapshot, nullptr);
  const TestPage snapshot = page(39, RecordKind::kSnapshot);
  EXPECT_TRUE(std::equal(snapshot.payload.begin(), snapshot.payload.end(), come->snapshot.get()));
  tier->retire(come, 1);
  tier->settle(1, true);
  EXPECT_FALSE(tier->busy());
}

TEST_F(StoreTiers, AFullRingDropsAndACopyThatFailedIsNotStored) {
  {
    const auto tier = open(4);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(stage(*tier, page(i), i + 1));
    EXPECT_FALSE(stage(*tier, page(4)));
    EXPECT_EQ(tier->stats().dropped, 1);
    tier->settle(2, true);
    tier->settle(4, false);
  }
  const auto tier = open();
  std::vector<PageKey> keys;
  for (uint64_t i = 0; i < 4; ++i) keys.push_back(page(i).key);
  EXPECT_EQ(tier->match(keys), 2u);
}

TEST_F(StoreTiers, APageThatIsMissingEndsALoadBeforeIt) {
  {
    const auto tier = open();
    for (uint64_t i = 0; i < 20; ++i) {
      if (i == 7) continue;
      ASSERT_TRUE(stage(*tier, page(i)));
    }
    tier->settle(1, true);
  }
  const auto tier = open();
  const auto come = load(*tier, 20);
  EXPECT_EQ(come->ready(), 7u);
  EXPECT_EQ(come->snapshot, nullptr);
  EXPECT_EQ(come->reason, MissReason::kNone);
}

TEST_F(StoreTiers, ALoadEndsByItsDeadline) {
  {
    const auto tier = open(128);
    for (uint64_t i = 0; i < 80; ++i) ASSERT_TRUE(stage(*tier, page(i)));
    tier->settle(1, true);
  }
  const auto tier = open(64, 30'000);
  disk_.set_fault([](std::string_view what, const std::string&) {
    if (what == "read") std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return Status();
  });
  const auto come = load(*tier, 80);
  EXPECT_LT(come->ready(), 80u);
  EXPECT_EQ(come->reason, MissReason::kLate);
  EXPECT_EQ(tier->stats().late, 1);
  disk_.set_fault(nullptr);
}

}  // namespace
}  // namespace deepinfer
