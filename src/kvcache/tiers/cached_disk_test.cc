#include "kvcache/tiers/cached_disk.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

int64_t refuse_reads(MemoryDisk& disk) {
  disk.set_fault(
      [](const char* what, const std::string&) { return std::string(what) == "read" ? Status(io_error("EIO")) : Status(); });
  return 0;
}

TEST(CachedDisk, WhatWasWrittenOrReadLastComesWithoutTheDisk) {
  MemoryDisk disk;
  const DateClock clock;
  CachedDisk near(disk, 64 << 20);
  const auto store = must_open(near, clock, test_store_options("kv"));
  for (uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(put_page(*store, TestPage(i)));
  refuse_reads(disk);
  for (uint64_t i = 0; i < 300; ++i) ASSERT_EQ(find_page(*store, TestPage(i)), Found::kExact) << i << ": sealed segments, too";
  disk.set_fault(nullptr);
  EXPECT_GT(store->stats().memory_bytes, 300 * 1'000);
  // Another process's: the first reading brings it here.
  CachedDisk other(disk, 64 << 20);
  const auto reader = must_open(other, clock, test_store_options("kv"));
  EXPECT_EQ(find_page(*reader, TestPage(7)), Found::kExact);
  refuse_reads(disk);
  EXPECT_EQ(find_page(*reader, TestPage(7)), Found::kExact);
  EXPECT_NE(find_page(*reader, TestPage(290)), Found::kExact);
  disk.set_fault(nullptr);
}

TEST(CachedDisk, WhatTheDiskRefusedAndWhatWentIsNotHere) {
  MemoryDisk disk;
  CachedDisk near(disk, 64 << 20);
  BlockBuffer block(kStoreBlock), back(kStoreBlock);
  auto file = *near.create("a");
  ASSERT_TRUE(file->write(0, block.bytes()));
  disk.set_fault(
      [](const char* what, const std::string&) { return std::string(what) == "write" ? Status(io_error("EIO")) : Status(); });
  EXPECT_FALSE(file->write(kStoreBlock, block.bytes()));
  disk.set_fault(nullptr);
  EXPECT_FALSE(file->read(kStoreBlock, back.bytes()));
  ASSERT_TRUE(near.remove("a"));
  auto again = *near.create("a");
  EXPECT_FALSE(again->read(0, back.bytes())) << "another file of the same name";
}

// Stretches of any order and size, in a cache that holds a few chunks: always the bytes of the disk.
TEST(CachedDisk, AnyReadsGiveTheBytesOfTheDisk) {
  MemoryDisk disk;
  CachedDisk near(disk, 3 << 18);
  constexpr int64_t kBlocks = 400;
  auto file = *near.create("a");
  std::mt19937 random(5);
  BlockBuffer buffer(kBlocks * kStoreBlock), back(kBlocks * kStoreBlock);
  for (uint8_t& byte : buffer.bytes()) byte = static_cast<uint8_t>(random());
  for (int64_t at = 0; at < kBlocks;) {
    const int64_t count = std::min<int64_t>(1 + static_cast<int64_t>(random() % 60), kBlocks - at);
    ASSERT_TRUE(file->write(at * kStoreBlock, buffer.bytes().subspan(static_cast<size_t>(at * kStoreBlock),
                                                                     static_cast<size_t>(count * kStoreBlock))));
    at += count;
  }
  for (int round = 0; round < 400; ++round) {
    const auto begin = static_cast<int64_t>(random() % kBlocks),
               count = 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(std::min<int64_t>(90, kBlocks - begin)));
    const auto out = back.first(count * kStoreBlock);
    ASSERT_TRUE(file->read(begin * kStoreBlock, out));
    ASSERT_TRUE(std::equal(out.begin(), out.end(), buffer.bytes().begin() + begin * kStoreBlock)) << round;
  }
  EXPECT_GT(near.served_bytes(), 0);
}

}  // namespace
}  // namespace deepinfer
