#include "kvcache/tiers/store_cipher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "kvcache/tiers/store_tools.h"
#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

constexpr uint64_t kPages = 90;

std::shared_ptr<const StoreCipher> key_of(uint8_t number) {
  std::array<uint8_t, StoreCipher::kKeyBytes> key;
  key.fill(number);
  return std::make_shared<const StoreCipher>(key);
}

class StoreCiphers : public testing::Test {
 protected:
  std::unique_ptr<SegmentStore> open(std::shared_ptr<const StoreCipher> cipher) {
    SegmentStoreOptions options = test_store_options("/store");
    options.cipher = std::move(cipher);
    return must_open(disk_, clock_, options);
  }
  int64_t found(SegmentStore& store, uint64_t step = 1) {
    int64_t count = 0;
    for (uint64_t i = 0; i < kPages; i += step) count += find_page(store, TestPage(i)) == Found::kExact;
    return count;
  }
  void SetUp() override {
    const auto store = open(key_of(1));
    for (uint64_t i = 0; i < kPages; ++i) ASSERT_TRUE(put_page(*store, TestPage(i)));
  }
  MemoryDisk disk_;
  DateClock clock_;
};

TEST(StoreCipher, AKeyIsReadFromAFile) {
  const std::string path = testing::TempDir() + "store.key-" + std::to_string(getpid());
  std::ofstream(path) << std::string(64, '7') << '\n';
  const auto hex = StoreCipher::open(path);
  ASSERT_TRUE(hex) << hex.error().message;
  std::ofstream(path) << std::string(32, 'w');
  const auto raw = StoreCipher::open(path);
  ASSERT_TRUE(raw);
  EXPECT_EQ((*raw)->mark(), key_of('w')->mark());
  EXPECT_EQ((*hex)->mark(), key_of(0x77)->mark());
  std::ofstream(path) << "short";
  EXPECT_FALSE(StoreCipher::open(path));
  std::ofstream(path) << std::string(63, '7') << 'x';
  EXPECT_FALSE(StoreCipher::open(path));
}

TEST(StoreCipher, WhatWasEncryptedComesBackAndNothingElseDoes) {
  const auto cipher = key_of(3);
  const std::vector<uint8_t> head(20, 5), plain(1'000, 9);
  std::vector<uint8_t> text = plain, seal(StoreCipher::kSealBytes), again = plain, other_seal(StoreCipher::kSealBytes);
  ASSERT_TRUE(cipher->encrypt(head, seal, text));
  ASSERT_TRUE(cipher->encrypt(head, other_seal, again));
  EXPECT_NE(text, again) << "a nonce of its own";
  for (std::vector<uint8_t>* part : {&text, &seal}) {
    for (size_t at = 0; at < part->size(); at += 7) {
      auto copy = text;
      (*part)[at] ^= 16;
      auto damaged = text;
      EXPECT_FALSE(cipher->decrypt(head, seal, damaged)) << at;
      (*part)[at] ^= 16;
      ASSERT_EQ(text, copy);
    }
  }
  auto foreign = text;
  EXPECT_FALSE(key_of(4)->decrypt(head, seal, foreign));
  EXPECT_FALSE(cipher->decrypt(std::span(head).first(19), seal, foreign = text));
  EXPECT_TRUE(cipher->decrypt(head, seal, text));
  EXPECT_EQ(text, plain);
}

TEST_F(StoreCiphers, OnlyItsKeyReadsAStore) {
  EXPECT_EQ(found(*open(key_of(1))), int64_t{kPages});
  // Under one fingerprint, as nobody opens it: the tier gives each key its own.
  for (const auto& cipher : {key_of(2), std::shared_ptr<const StoreCipher>()}) {
    const auto store = open(cipher);
    EXPECT_EQ(found(*store), 0);
    EXPECT_EQ(store->stats().wrong_records, int64_t{kPages});
    EXPECT_EQ(store->stats().corrupt_records, 0);
  }
  for (const std::string& path : disk_.paths()) {
    const auto& bytes = disk_.bytes_of(path);
    for (uint64_t i = 0; i < kPages; ++i) {
      const TestPage page(i);
      const auto* ids = reinterpret_cast<const uint8_t*>(page.tokens.data());
      ASSERT_EQ(std::search(bytes.begin(), bytes.end(), ids, ids + 4 * page.tokens.size()), bytes.end());
      ASSERT_EQ(std::search(bytes.begin(), bytes.end(), page.payload.begin(), page.payload.begin() + 40), bytes.end());
    }
  }
  // What is not encrypted is not believed by who has a key.
  for (const std::string& path : disk_.paths()) ASSERT_TRUE(disk_.remove(path));
  static_cast<void>(put_page(*open(nullptr), TestPage(0)));
  EXPECT_EQ(found(*open(key_of(1))), 0);
}

TEST_F(StoreCiphers, ToolsSayWhatTheyCannotReadAndMoveWhatTheyCan) {
  const auto survey = [&](const StoreCipher* cipher) {
    auto out = survey_store(disk_, "/store", true, cipher);
    DI_CHECK(out.ok());
    return *std::move(out);
  };
  for (const SurveyedSegment& segment : survey(key_of(1).get()).segments) EXPECT_TRUE(!segment.locked && segment.damaged == 0);
  for (const SurveyedSegment& segment : survey(key_of(2).get()).segments) EXPECT_TRUE(segment.locked && segment.damaged == 0);
  EXPECT_FALSE(drop_from_store(disk_, "/store", {.tenant = 1}, 99)) << "others' records cannot be moved without the key";
  EXPECT_FALSE(drop_from_store(disk_, "/store", {.prefix = TestPage(0).tokens}, 99));
  ASSERT_TRUE(drop_from_store(disk_, "/store", {.tenant = 1}, 99, key_of(1).get()));
  const auto store = open(key_of(1));
  EXPECT_EQ(found(*store), int64_t{kPages} * 2 / 3);
  EXPECT_EQ(found(*store, 3), int64_t{kPages} / 3) << "tenant 0's";
}

}  // namespace
}  // namespace deepinfer
