#include "kvcache/tiers/store_tools.h"

#include <gtest/gtest.h>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

constexpr uint64_t kPages = 200;

class StoreTools : public testing::Test {
 protected:
  std::unique_ptr<SegmentStore> open() { return must_open(disk_, clock_, test_store_options("/store")); }
  void fill(SegmentStore& store) {
    for (uint64_t i = 0; i < kPages; ++i)
      ASSERT_TRUE(put_page(store, TestPage(i), i % 2 ? RetentionClass::kChat : RetentionClass::kAgent).ok());
  }
  StoreSurvey survey(bool read_all) {
    auto survey = survey_store(disk_, "/store", read_all);
    DI_CHECK(survey.ok());
    return *std::move(survey);
  }
  int64_t num_records(uint64_t tenant) {
    int64_t records = 0;
    for (const SurveyedSegment& segment : survey(true).segments) {
      if (const auto share = segment.tenants.find(tenant); share != segment.tenants.end()) records += share->second.records;
    }
    return records;
  }

  MemoryDisk disk_;
  DateClock clock_;
};

TEST_F(StoreTools, ATenantIsDroppedAndOthersKeepEveryByteAndTheirExpiry) {
  fill(*open());
  std::map<RetentionClass, int64_t> expires;
  for (const SurveyedSegment& segment : survey(false).segments) expires[segment.name.retention] = segment.header.expires_s;
  const int64_t mine = num_records(1);
  const auto dropped = drop_from_store(disk_, "/store", {.tenant = 1}, 99);
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(dropped->removed_records, mine);
  EXPECT_TRUE(dropped->in_use.empty());
  EXPECT_EQ(num_records(1), 0);
  for (const SurveyedSegment& segment : survey(true).segments) {
    EXPECT_EQ(segment.damaged, 0);
    EXPECT_EQ(segment.header.expires_s, expires[segment.name.retention]);
  }
  const auto store = open();
  for (uint64_t i = 0; i < kPages; ++i) EXPECT_EQ(find_page(*store, TestPage(i)), i % 3 == 1 ? Found::kMiss : Found::kExact) << i;
}

TEST_F(StoreTools, AClassIsDroppedByRemovingItsFiles) {
  fill(*open());
  ASSERT_TRUE(drop_from_store(disk_, "/store", {.retention = RetentionClass::kAgent}, 99).ok());
  const auto store = open();
  for (uint64_t i = 0; i < kPages; ++i) EXPECT_EQ(find_page(*store, TestPage(i)), i % 2 ? Found::kExact : Found::kMiss) << i;
}

// A chain of three pages, and one that leaves it behind its first page.
TEST_F(StoreTools, APrefixIsDroppedWithWhatContinuesItAndNothingElse) {
  std::vector<TestPage> pages;
  for (uint64_t i = 0; i < 5; ++i) pages.emplace_back(i);
  pages[1].parent = pages[3].parent = pages[0].key, pages[2].parent = pages[1].key;
  {
    const auto store = open();
    fill(*store);
    for (uint64_t i = 0; i < pages.size(); ++i) {
      TestPage& page = pages[i];
      page.key.high ^= 1, page.tenant = 9;  // apart from those of fill()
      if (i >= 1 && i <= 3) page.parent.high ^= 1;
      page.tokens[7] = 5;
      RecordView record = page.record();
      record.starts = i == 0 || i == 4;
      ASSERT_TRUE(store->put(i % 2 ? RetentionClass::kAgent : RetentionClass::kChat, {&record, 1}).ok());
    }
  }
  std::vector<TokenId> prefix = pages[0].tokens;
  prefix.insert(prefix.end(), pages[1].tokens.begin(), pages[1].tokens.begin() + 2);
  const auto dropped = drop_from_store(disk_, "/store", {.prefix = prefix}, 99);
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(dropped->removed_records, 3) << "the prefix's own pages and the third, which continues it";
  const auto store = open();
  for (uint64_t i = 0; i < pages.size(); ++i) EXPECT_EQ(find_page(*store, pages[i]), i < 3 ? Found::kMiss : Found::kExact) << i;
  for (uint64_t i = 0; i < kPages; ++i) EXPECT_EQ(find_page(*store, TestPage(i)), Found::kExact) << i;
}

TEST_F(StoreTools, WhatALivingServerWritesIsToldAndLeft) {
  const auto store = open();
  fill(*store);
  const auto dropped = drop_from_store(disk_, "/store", {}, 99);
  ASSERT_TRUE(dropped.ok());
  EXPECT_EQ(dropped->in_use.size(), 2u);
  ASSERT_TRUE(store->refresh().ok());
  EXPECT_EQ(find_page(*store, TestPage(kPages - 1)), Found::kExact);
  EXPECT_EQ(find_page(*store, TestPage(0)), Found::kMiss);
}

TEST_F(StoreTools, FilesUnderEachOthersNamesAreFound) {
  fill(*open());
  std::vector<std::string> files;
  for (const SurveyedSegment& segment : survey(true).segments) files.push_back(segment.path);
  ASSERT_GE(files.size(), 2u);
  disk_.swap_files("/store/" + files[0], "/store/" + files[1]);
  disk_.add("/store/" + files[0].substr(0, files[0].size() - 5) + "f.seg", disk_.bytes_of("/store/" + files[2]));
  int64_t unreadable = 0;
  for (const SurveyedSegment& segment : survey(true).segments) unreadable += segment.error.find("misnamed") != std::string::npos;
  EXPECT_EQ(unreadable, 3);
}

TEST_F(StoreTools, DamageIsFoundByReadingAll) {
  fill(*open());
  for (const std::string& path : disk_.paths()) disk_.bytes_of(path)[4096 + 300] ^= 1;
  int64_t damaged = 0;
  for (const SurveyedSegment& segment : survey(true).segments) damaged += segment.damaged;
  EXPECT_EQ(damaged, static_cast<int64_t>(disk_.paths().size()));
}

}  // namespace
}  // namespace deepinfer
