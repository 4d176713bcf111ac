// kvcache/tiers/segment_format.h - the bytes of a segment file: header, record, table, footer (docs/formats/kv_segments.md).
//
// One place that owns every offset. Encoders fill whole blocks; decoders believe nothing: what they return has passed its
// checksum and fits into the bytes given. A record is bound to one segment and one offset in it.
// Threads: pure.
//
//   encode_record(header.identity, offset, item, block_bytes_of_the_record);
//   DI_TRY(RecordView record, decode_record(header.identity, offset, bytes));
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/kv_layout.h"
#include "core/types.h"
#include "kvcache/page_key.h"
#include "kvcache/tiers/store_cipher.h"

namespace deepinfer {

inline constexpr int64_t kStoreBlock = 4096;

using StoreFingerprint = std::array<uint8_t, 32>;
// Of a text that names all that page contents depend on.
StoreFingerprint store_fingerprint(std::string_view text);

// Part of a page, as tools and other programs find it.
struct StoredSection {
  uint16_t layer = 0, kind = 0;
  uint32_t offset = 0, bytes = 0;
  bool operator==(const StoredSection&) const = default;
};
std::vector<StoredSection> stored_sections(const KvLayout& layout);

struct SegmentHeader {
  StoreFingerprint fingerprint{};
  uint64_t writer = 0, sequence = 0;
  int64_t created_s = 0, expires_s = 0;  // expires_s 0: never
  uint64_t identity = 0;                 // set by encode_header and decode_header
  RetentionClass retention = RetentionClass::kChat;
  uint32_t page_tokens = 0, page_bytes = 0;
  std::vector<StoredSection> sections;
  uint64_t key_mark = 0;  // of the key its records are encrypted with (store_cipher.h); 0: none
};
inline constexpr size_t kMostStoredSections = 300;

enum class RecordKind : uint8_t { kPage = 1, kSnapshot = 2 };

// What is stored and what is asked for. All spans are borrowed.
struct RecordView {
  RecordKind kind = RecordKind::kPage;
  bool exact = true;
  PageKey key, parent;
  uint64_t tenant = 0;
  std::span<const TokenId> tokens;
  std::span<const uint8_t> payload;
  bool starts = false;  // the first page of its prompts
  // The whole record as it lies in a file, in memory of whole blocks, with `payload` in its place: so that it is written from
  // where it was made, and read to where it is used, without a copy. Empty: it is copied.
  std::span<uint8_t> image;
};

struct TableEntry {
  PageKey key;
  uint64_t tenant = 0;
  uint32_t first_block = 0, blocks = 0;
  uint8_t kind = 0, flags = 0;  // kinds of a later version included
  uint64_t start = 0;           // of a first page start_mark(), else 0
};
// 48 bits of the token ids of a first page: says without its key that another model knows the same beginning.
uint64_t start_mark(std::span<const TokenId> tokens);

struct SegmentFooter {
  uint64_t table_offset = 0, entries = 0;
  PageKey table_checksum;
};

// `out` is one block. REQUIRES: at most kMostStoredSections sections.
void encode_header(SegmentHeader& header, std::span<uint8_t> out);
Result<SegmentHeader> decode_header(std::span<const uint8_t> block);

inline constexpr int64_t kMostRecordBytes = 64 << 20;
int64_t record_bytes(size_t tokens, size_t payload);
// Where tokens and payload begin in a record.
inline constexpr size_t kRecordTokens = 128;
inline constexpr size_t record_payload_at(size_t tokens) { return kRecordTokens + tokens * sizeof(TokenId); }
uint8_t flags_of(const RecordView& record);
// `out` is record_bytes() long. What lies in its place already, as in an image, is not copied.
void encode_record(uint64_t identity, uint64_t offset, const RecordView& record, std::span<uint8_t> out);
// Bytes of the record whose first block is given, by its own word; 0 when no record of this segment begins at `offset`.
int64_t claimed_record_bytes(uint64_t identity, uint64_t offset, std::span<const uint8_t> block);
// The head of a record with its tokens, of its first bytes only: nothing but lengths is checked.
Result<RecordView> peek_record(uint64_t identity, uint64_t offset, std::span<const uint8_t> bytes);
// The entry of a sound record in `bytes` (the record and nothing else).
Result<TableEntry> check_record(uint64_t identity, uint64_t offset, std::span<const uint8_t> bytes);
// The record itself; its spans lie in `bytes`. kUnsupported for a kind of a later version.
Result<RecordView> decode_record(uint64_t identity, uint64_t offset, std::span<const uint8_t> bytes);

// Encrypts a record where it lies, after encode_record().
Status encrypt_record(const StoreCipher& cipher, std::span<uint8_t> record);
// The opposite, after decode_record(), whose spans then show what was encrypted; `cipher` null: it must not be encrypted. False:
// it is not as wanted, or of another key.
bool decrypt_record(const StoreCipher* cipher, std::span<uint8_t> record);

int64_t table_bytes(size_t entries);
// Table and footer of a segment whose records end at `offset`; `out` is table_bytes() + kStoreBlock long.
void encode_table(uint64_t identity, uint64_t offset, std::span<const TableEntry> entries, std::span<uint8_t> out);
Result<SegmentFooter> decode_footer(uint64_t identity, uint64_t file_bytes, std::span<const uint8_t> block);
// `bytes` are the table's blocks. Entries that lie outside the records are an error.
Result<std::vector<TableEntry>> decode_table(const SegmentFooter& footer, std::span<const uint8_t> bytes);

}  // namespace deepinfer
