#include "kvcache/tiers/segment_format.h"

#define XXH_STATIC_LINKING_ONLY  // the size of a streaming state
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers lie in files as they lie in memory");

constexpr uint32_t kVersion = 1;
constexpr size_t kSections = 96, kSectionBytes = 12;
constexpr size_t kKeyMark = 4072, kBlockChecksum = 4080;
constexpr size_t kRecordSeal = 72, kRecordChecksum = 112;
constexpr size_t kRecordHead = 56;  // what is authenticated with an encrypted record
constexpr uint8_t kEncrypted = 4;   // among its flags
constexpr size_t kEntryBytes = 40;
constexpr uint32_t kMostPageTokens = 1 << 16;
static_assert(kSections + kMostStoredSections * kSectionBytes <= kKeyMark);

template <class T>
void put(std::span<uint8_t> out, size_t at, const T& value) {
  std::memcpy(out.data() + at, &value, sizeof(T));
}

template <class T>
T get(std::span<const uint8_t> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

PageKey checksum(std::span<const uint8_t> first, std::span<const uint8_t> second = {}) {
  if (second.empty()) {
    const XXH128_hash_t hash = XXH3_128bits(first.data(), first.size());
    return {hash.low64, hash.high64};
  }
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, first.data(), first.size());
  XXH3_128bits_update(&state, second.data(), second.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {hash.low64, hash.high64};
}

bool has_magic(std::span<const uint8_t> bytes, const char* magic) { return std::memcmp(bytes.data(), magic, 4) == 0; }

Status check_block(std::span<const uint8_t> block, const char* magic, const char* name) {
  if (block.size() != static_cast<size_t>(kStoreBlock) || !has_magic(block, magic)) return corrupt(fmt::format("no {}", name));
  if (get<PageKey>(block, kBlockChecksum) != checksum(block.first(kBlockChecksum))) {
    return corrupt(fmt::format("the {} does not have its checksum", name));
  }
  const auto version = get<uint32_t>(block, 4);
  if (version != kVersion) return unsupported(fmt::format("version {} of the {}, known is {}", version, name, kVersion));
  return {};
}

uint64_t identity_of(std::span<const uint8_t> header) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, header.data(), 72);
  XXH3_64bits_update(&state, header.data() + 80, 16);
  return XXH3_64bits_digest(&state);
}

// REQUIRES: a record whose claimed length is that of `bytes`.
std::span<const TokenId> tokens_in(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const TokenId*>(bytes.data() + kRecordTokens), get<uint32_t>(bytes, 8)};
}

int64_t whole_blocks(int64_t bytes) { return (bytes + kStoreBlock - 1) / kStoreBlock * kStoreBlock; }

PageKey record_checksum(std::span<const uint8_t> bytes) {
  return checksum(bytes.first(kRecordChecksum), bytes.subspan(kRecordTokens));
}

}  // namespace

StoreFingerprint store_fingerprint(std::string_view text) {
  StoreFingerprint out;
  for (uint64_t half = 0; half < 2; ++half) {
    const XXH128_hash_t hash = XXH3_128bits_withSeed(text.data(), text.size(), half);
    put(std::span(out), 16 * half, hash.low64);
    put(std::span(out), 16 * half + 8, hash.high64);
  }
  return out;
}

std::vector<StoredSection> stored_sections(const KvLayout& layout) {
  std::vector<StoredSection> out;
  for (const PageSection& section : layout.sections) {
    const int64_t offsets[] = {section.main_codes, section.main_scales, section.index_codes, section.index_scales};
    for (uint16_t kind = 0; kind < 4; ++kind) {
      out.push_back({static_cast<uint16_t>(section.layer), kind, static_cast<uint32_t>(offsets[kind]), 0});
    }
  }
  // A section reaches to the next one: padding is part of the page.
  for (size_t i = 0; i < out.size(); ++i) {
    const auto end = i + 1 < out.size() ? out[i + 1].offset : static_cast<uint32_t>(layout.page_bytes);
    out[i].bytes = end - out[i].offset;
  }
  return out;
}

void encode_header(SegmentHeader& header, std::span<uint8_t> out) {
  DI_CHECK(header.sections.size() <= kMostStoredSections);
  std::fill(out.begin(), out.end(), uint8_t{0});
  std::memcpy(out.data(), "DISG", 4);
  put(out, 4, kVersion);
  put(out, 8, header.fingerprint);
  put(out, 40, header.writer);
  put(out, 48, header.sequence);
  put(out, 56, header.created_s);
  put(out, 64, header.expires_s);
  put(out, 80, static_cast<uint8_t>(header.retention));
  put(out, 84, header.page_tokens);
  put(out, 88, header.page_bytes);
  put(out, 92, static_cast<uint32_t>(header.sections.size()));
  for (size_t i = 0; i < header.sections.size(); ++i) put(out, kSections + i * kSectionBytes, header.sections[i]);
  put(out, kKeyMark, header.key_mark);
  header.identity = identity_of(out);
  put(out, 72, header.identity);
  put(out, kBlockChecksum, checksum(out.first(kBlockChecksum)));
}

Result<SegmentHeader> decode_header(std::span<const uint8_t> block) {
  DI_CHECK_OK(check_block(block, "DISG", "segment header"));
  SegmentHeader header;
  header.fingerprint = get<StoreFingerprint>(block, 8);
  header.writer = get<uint64_t>(block, 40);
  header.sequence = get<uint64_t>(block, 48);
  header.created_s = get<int64_t>(block, 56);
  header.expires_s = get<int64_t>(block, 64);
  header.identity = get<uint64_t>(block, 72);
  const auto retention = get<uint8_t>(block, 80);
  header.key_mark = get<uint64_t>(block, kKeyMark);
  header.page_tokens = get<uint32_t>(block, 84);
  header.page_bytes = get<uint32_t>(block, 88);
  const auto sections = get<uint32_t>(block, 92);
  if (header.identity != identity_of(block) || retention > static_cast<uint8_t>(RetentionClass::kPinned) ||
      sections > kMostStoredSections || header.page_tokens > kMostPageTokens) {
    return corrupt("the segment header contradicts itself");
  }
  header.retention = static_cast<RetentionClass>(retention);
  for (size_t i = 0; i < sections; ++i) header.sections.push_back(get<StoredSection>(block, kSections + i * kSectionBytes));
  return header;
}

uint64_t start_mark(std::span<const TokenId> tokens) { return XXH3_64bits(tokens.data(), tokens.size_bytes()) >> 16 | 1; }

uint8_t flags_of(const RecordView& record) { return static_cast<uint8_t>((record.exact ? 1 : 0) | (record.starts ? 2 : 0)); }

int64_t record_bytes(size_t tokens, size_t payload) {
  return whole_blocks(static_cast<int64_t>(record_payload_at(tokens) + payload));
}

void encode_record(uint64_t identity, uint64_t offset, const RecordView& record, std::span<uint8_t> out) {
  const size_t payload_at = record_payload_at(record.tokens.size()), end = payload_at + record.payload.size();
  DI_CHECK(static_cast<int64_t>(out.size()) == record_bytes(record.tokens.size(), record.payload.size()));
  std::fill(out.begin(), out.begin() + kRecordTokens, uint8_t{0});
  std::memcpy(out.data(), "DIRC", 4);
  put(out, 4, static_cast<uint8_t>(record.kind));
  put(out, 5, flags_of(record));
  put(out, 8, static_cast<uint32_t>(record.tokens.size()));
  put(out, 12, static_cast<uint32_t>(record.payload.size()));
  put(out, 16, record.key);
  put(out, 32, record.parent);
  put(out, 48, record.tenant);
  put(out, 56, identity);
  put(out, 64, offset);
  const auto* tokens = reinterpret_cast<const uint8_t*>(record.tokens.data());
  if (tokens != &out[kRecordTokens]) std::copy_n(tokens, record.tokens.size_bytes(), &out[kRecordTokens]);
  const auto payload = out.subspan(payload_at, record.payload.size());
  if (record.payload.data() != payload.data()) std::copy(record.payload.begin(), record.payload.end(), payload.begin());
  std::fill(out.begin() + static_cast<ptrdiff_t>(end), out.end(), uint8_t{0});
  put(out, kRecordChecksum, record_checksum(out));
}

int64_t claimed_record_bytes(uint64_t identity, uint64_t offset, std::span<const uint8_t> block) {
  if (block.size() < static_cast<size_t>(kStoreBlock) || !has_magic(block, "DIRC")) return 0;
  if (get<uint64_t>(block, 56) != identity || get<uint64_t>(block, 64) != offset) return 0;
  const int64_t claimed = record_bytes(get<uint32_t>(block, 8), get<uint32_t>(block, 12));
  return claimed > kMostRecordBytes ? 0 : claimed;
}

Result<TableEntry> check_record(uint64_t identity, uint64_t offset, std::span<const uint8_t> bytes) {
  const int64_t claimed = claimed_record_bytes(identity, offset, bytes);
  if (claimed == 0) return corrupt("no record of this segment begins here");
  if (claimed != static_cast<int64_t>(bytes.size())) return corrupt("the record has another length");
  if (get<PageKey>(bytes, kRecordChecksum) != record_checksum(bytes)) return corrupt("the record does not have its checksum");
  return TableEntry{get<PageKey>(bytes, 16),
                    get<uint64_t>(bytes, 48),
                    static_cast<uint32_t>(offset / kStoreBlock),
                    static_cast<uint32_t>(claimed / kStoreBlock),
                    bytes[4],
                    bytes[5],
                    (bytes[5] & (2 | kEncrypted)) == 2 ? start_mark(tokens_in(bytes)) : 0};
}

Result<RecordView> decode_record(uint64_t identity, uint64_t offset, std::span<const uint8_t> bytes) {
  DI_TRY(const TableEntry entry, check_record(identity, offset, bytes));
  if (entry.kind != static_cast<uint8_t>(RecordKind::kPage) && entry.kind != static_cast<uint8_t>(RecordKind::kSnapshot)) {
    return unsupported(fmt::format("kind {} of a record is not known", entry.kind));
  }
  RecordView out{static_cast<RecordKind>(entry.kind), (entry.flags & 1) != 0, entry.key, get<PageKey>(bytes, 32), entry.tenant};
  out.tokens = tokens_in(bytes);
  out.starts = (entry.flags & 2) != 0;
  out.payload = bytes.subspan(kRecordTokens + out.tokens.size_bytes(), get<uint32_t>(bytes, 12));
  return out;
}

// Tokens and payload.
static std::span<uint8_t> text_of(std::span<uint8_t> record) {
  const size_t bytes = get<uint32_t>(record, 8) * sizeof(TokenId) + get<uint32_t>(record, 12);
  return record.subspan(kRecordTokens, bytes);
}

Status encrypt_record(const StoreCipher& cipher, std::span<uint8_t> record) {
  record[5] |= kEncrypted;
  DI_CHECK_OK(cipher.encrypt(record.first(kRecordHead), record.subspan(kRecordSeal, StoreCipher::kSealBytes), text_of(record)));
  put(record, kRecordChecksum, record_checksum(record));
  return {};
}

bool decrypt_record(const StoreCipher* cipher, std::span<uint8_t> record) {
  if ((record[5] & kEncrypted) == 0) return cipher == nullptr;
  return cipher &&
         cipher->decrypt(record.first(kRecordHead), record.subspan(kRecordSeal, StoreCipher::kSealBytes), text_of(record));
}

Result<RecordView> peek_record(uint64_t identity, uint64_t offset, std::span<const uint8_t> bytes) {
  if (claimed_record_bytes(identity, offset, bytes) == 0 || record_payload_at(get<uint32_t>(bytes, 8)) > bytes.size())
    return corrupt("no record of this segment begins here");
  RecordView out{static_cast<RecordKind>(bytes[4]), (bytes[5] & 1) != 0, get<PageKey>(bytes, 16), get<PageKey>(bytes, 32),
                 get<uint64_t>(bytes, 48)};
  out.tokens = tokens_in(bytes);
  out.starts = (bytes[5] & 2) != 0;
  return out;
}

int64_t table_bytes(size_t entries) { return whole_blocks(static_cast<int64_t>(entries * kEntryBytes)); }

void encode_table(uint64_t identity, uint64_t offset, std::span<const TableEntry> entries, std::span<uint8_t> out) {
  std::fill(out.begin(), out.end(), uint8_t{0});
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto at = out.subspan(i * kEntryBytes, kEntryBytes);
    put(at, 0, entries[i].key);
    put(at, 16, entries[i].tenant);
    put(at, 24, entries[i].first_block);
    put(at, 28, entries[i].blocks);
    put(at, 32, entries[i].kind);
    put(at, 33, entries[i].flags);
    put(at, 34, static_cast<uint16_t>(entries[i].start));
    put(at, 36, static_cast<uint32_t>(entries[i].start >> 16));
  }
  const auto table = out.first(static_cast<size_t>(table_bytes(entries.size())));
  const auto footer = out.subspan(table.size());
  std::memcpy(footer.data(), "DIFT", 4);
  put(footer, 4, kVersion);
  put(footer, 8, identity);
  put(footer, 16, offset);
  put(footer, 24, uint64_t{entries.size()});
  put(footer, 32, checksum(table));
  put(footer, kBlockChecksum, checksum(footer.first(kBlockChecksum)));
}

Result<SegmentFooter> decode_footer(uint64_t identity, uint64_t file_bytes, std::span<const uint8_t> block) {
  DI_CHECK_OK(check_block(block, "DIFT", "segment footer"));
  if (get<uint64_t>(block, 8) != identity) return corrupt("the footer belongs to another segment");
  const SegmentFooter footer{get<uint64_t>(block, 16), get<uint64_t>(block, 24), get<PageKey>(block, 32)};
  const bool small = footer.entries <= file_bytes / kStoreBlock && footer.table_offset <= file_bytes;
  if (!small || footer.table_offset + static_cast<uint64_t>(table_bytes(footer.entries) + kStoreBlock) != file_bytes) {
    return corrupt("the footer does not fit the length of its file");
  }
  return footer;
}

Result<std::vector<TableEntry>> decode_table(const SegmentFooter& footer, std::span<const uint8_t> bytes) {
  if (checksum(bytes) != footer.table_checksum) return corrupt("the table does not have its checksum");
  std::vector<TableEntry> entries;
  entries.reserve(footer.entries);
  for (uint64_t i = 0; i < footer.entries; ++i) {
    const auto at = bytes.subspan(i * kEntryBytes, kEntryBytes);
    const uint64_t start = get<uint16_t>(at, 34) | uint64_t{get<uint32_t>(at, 36)} << 16;
    entries.push_back(
        {get<PageKey>(at, 0), get<uint64_t>(at, 16), get<uint32_t>(at, 24), get<uint32_t>(at, 28), at[32], at[33], start});
    const TableEntry& entry = entries.back();
    const uint64_t end = (uint64_t{entry.first_block} + entry.blocks) * kStoreBlock;
    if (entry.first_block == 0 || entry.blocks == 0 || end > footer.table_offset)
      return corrupt("the table points outside the records");
  }
  return entries;
}

}  // namespace deepinfer
