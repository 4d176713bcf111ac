#include "kvcache/tiers/segment_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kvcache/tiers/stored_page_fixture.h"

namespace deepinfer {
namespace {

constexpr uint64_t kIdentity = 0x1234, kOffset = 5 * kStoreBlock;

// Every bit of `bytes` in turn is turned over; returns how many times `accepts` did not notice.
template <class Accepts>
int64_t unnoticed_flips(std::vector<uint8_t>& bytes, Accepts accepts) {
  int64_t unnoticed = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    unnoticed += accepts() ? 1 : 0;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  return unnoticed;
}

TEST(SegmentFormat, APageOfTheReleaseTakesFourteenBlocksWithoutPadding) {
  EXPECT_EQ(record_bytes(64, 56'960), 14 * kStoreBlock);
  EXPECT_EQ(128 + 64 * 4 + 56'960, 14 * kStoreBlock);
}

TEST(SegmentFormat, ARecordComesBackAsItWasAndEveryFlippedBitIsSeen) {
  const TestPage page(7);
  std::vector<uint8_t> bytes(static_cast<size_t>(record_bytes(page.tokens.size(), page.payload.size())));
  encode_record(kIdentity, kOffset, page.record(), bytes);
  const auto record = decode_record(kIdentity, kOffset, bytes);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->key, page.key);
  EXPECT_EQ(record->parent, page.parent);
  EXPECT_EQ(record->tenant, page.tenant);
  EXPECT_TRUE(std::equal(record->tokens.begin(), record->tokens.end(), page.tokens.begin(), page.tokens.end()));
  EXPECT_TRUE(std::equal(record->payload.begin(), record->payload.end(), page.payload.begin(), page.payload.end()));
  EXPECT_EQ(unnoticed_flips(bytes, [&] { return decode_record(kIdentity, kOffset, bytes).ok(); }), 0);
}

TEST(SegmentFormat, ARecordIsNoneElsewhere) {
  const TestPage page(7);
  std::vector<uint8_t> bytes(static_cast<size_t>(record_bytes(page.tokens.size(), page.payload.size())));
  encode_record(kIdentity, kOffset, page.record(), bytes);
  EXPECT_FALSE(decode_record(kIdentity, kOffset + kStoreBlock, bytes));
  EXPECT_FALSE(decode_record(kIdentity + 1, kOffset, bytes));
}

TEST(SegmentFormat, AHeaderComesBackAndEveryFlippedBitIsSeen) {
  SegmentHeader header{store_fingerprint("x"), 3, 4, 1'000, 2'000};
  header.retention = RetentionClass::kAgent;
  header.page_tokens = 64;
  header.page_bytes = 56'960;
  header.sections = {{2, 0, 0, 16'384}, {2, 1, 16'384, 2'048}};
  std::vector<uint8_t> block(kStoreBlock);
  encode_header(header, block);
  const auto read = decode_header(block);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->fingerprint, header.fingerprint);
  EXPECT_EQ(read->identity, header.identity);
  EXPECT_EQ(read->sections, header.sections);
  EXPECT_EQ(read->expires_s, 2'000);
  EXPECT_EQ(read->retention, RetentionClass::kAgent);
  EXPECT_EQ(unnoticed_flips(block, [&] { return decode_header(block).ok(); }), 0);
}

TEST(SegmentFormat, ATableComesBackAndEveryFlippedBitIsSeen) {
  const std::vector<TableEntry> entries = {{{1, 2}, 9, 1, 2, 1, 1}, {{3, 4}, 8, 3, 2, 2, 1}};
  std::vector<uint8_t> bytes(static_cast<size_t>(table_bytes(entries.size()) + kStoreBlock));
  encode_table(kIdentity, kOffset, entries, bytes);
  const uint64_t file_bytes = kOffset + bytes.size();
  const auto load = [&]() -> Result<std::vector<TableEntry>> {
    const std::span<const uint8_t> all(bytes);
    DI_TRY(const SegmentFooter footer, decode_footer(kIdentity, file_bytes, all.last(kStoreBlock)));
    return decode_table(footer, all.first(static_cast<size_t>(table_bytes(footer.entries))));
  };
  const auto read = load();
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[1].key, (PageKey{3, 4}));
  EXPECT_EQ((*read)[1].first_block, 3u);
  EXPECT_EQ(unnoticed_flips(bytes, [&] { return load().ok(); }), 0);
}

TEST(SegmentFormat, TheSectionsOfALayoutCoverThePage) {
  KvLayout layout;
  layout.sections = {{2, 2, 32, 0, 8'192, 9'216, 11'264}, {20, 1, 64, 11'392, 27'776, 29'824, 33'920}};
  layout.page_bytes = 34'176;
  const auto sections = stored_sections(layout);
  ASSERT_EQ(sections.size(), 8u);
  uint32_t end = 0;
  for (const StoredSection& section : sections) {
    EXPECT_EQ(section.offset, end);
    end += section.bytes;
  }
  EXPECT_EQ(end, 34'176u);
}

}  // namespace
}  // namespace deepinfer
