// Pages for tests of the segment store: everything in them follows from a number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvcache/tiers/segment_store.h"

namespace deepinfer {

inline constexpr uint32_t kTestPageTokens = 8, kTestPageBytes = 1'000;

struct TestPage {
  explicit TestPage(uint64_t number, RecordKind record_kind = RecordKind::kPage, size_t bytes = kTestPageBytes)
      : kind(record_kind), tenant(number % 3), payload(bytes) {
    for (uint32_t i = 0; i < kTestPageTokens; ++i) tokens.push_back(static_cast<TokenId>(number * 31 + i));
    const PageKey root = root_key("test", false, std::to_string(number));
    std::vector<PageKey> keys;
    extend_page_keys(root, tokens, {}, kTestPageTokens, keys);
    parent = root;
    key = keys.front();
    for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<uint8_t>((number + 1) * (i + 3) >> (i % 7));
  }
  RecordView record() const { return {kind, true, key, parent, tenant, tokens, payload, false, {}}; }

  RecordKind kind;
  PageKey key, parent;
  uint64_t tenant;
  std::vector<TokenId> tokens;
  std::vector<uint8_t> payload;
};

inline SegmentStoreOptions test_store_options(std::string root, int64_t limit_bytes = 64 << 20) {
  SegmentStoreOptions options;
  options.root = std::move(root);
  options.fingerprint = store_fingerprint("test");
  options.page_tokens = kTestPageTokens;
  options.page_bytes = kTestPageBytes;
  options.sections = {{2, 0, 0, 600}, {2, 1, 600, 400}};
  options.limit_bytes = limit_bytes;
  options.segment_bytes = 96 << 10;  // small: many segments
  return options;
}

inline std::unique_ptr<SegmentStore> must_open(StoreDisk& disk, const Clock& clock, const SegmentStoreOptions& options) {
  auto store = SegmentStore::open(disk, clock, options);
  DI_CHECK(store.ok());
  return *std::move(store);
}

inline Status put_page(SegmentStore& store, const TestPage& page, RetentionClass retention = RetentionClass::kChat) {
  const RecordView record = page.record();
  return store.put(retention, {&record, 1});
}

enum class Found { kMiss, kExact, kAgeing, kWrong };

// A hit whose bytes are not the page's is kWrong.
inline Found find_page(SegmentStore& store, const TestPage& page) {
  std::vector<uint8_t> payload(page.payload.size());
  const StoreRead read = store.read(page.record(), payload);
  if (read == StoreRead::kMiss || read == StoreRead::kFault) return Found::kMiss;
  if (payload != page.payload) return Found::kWrong;
  return read == StoreRead::kHit ? Found::kExact : Found::kAgeing;
}

}  // namespace deepinfer
