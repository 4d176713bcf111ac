#include "kvcache/tiers/segment_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace deepinfer {
namespace {

// Each class may have a segment being written; with more of them than that below the limit, something can always be removed.
constexpr int64_t kSegmentsBelowLimit = 16;

SegmentStoreOptions fitted(SegmentStoreOptions options) {
  const int64_t most = options.limit_bytes / kSegmentsBelowLimit / kStoreBlock * kStoreBlock;
  options.segment_bytes = std::min(options.segment_bytes, most);
  return options;
}

}  // namespace

SegmentStore::SegmentStore(StoreDisk& disk, const Clock& clock, const SegmentStoreOptions& options)
    : disk_(disk), clock_(clock), options_(fitted(options)), folder_(folder_name(options.fingerprint)) {}

Result<std::unique_ptr<SegmentStore>> SegmentStore::open(StoreDisk& disk, const Clock& clock,
                                                         const SegmentStoreOptions& options) {
  if (options.root.empty() || options.page_tokens == 0 || options.page_bytes == 0) {
    return invalid_argument("a KV store needs a folder and the size of a page");
  }
  if (options.sections.size() > kMostStoredSections) {
    return unsupported(
        fmt::format("{} sections of a page, a segment header has room for {}", options.sections.size(), kMostStoredSections));
  }
  std::unique_ptr<SegmentStore> store(new SegmentStore(disk, clock, options));
  const int64_t page = record_bytes(options.page_tokens, options.page_bytes);
  if (store->options_.segment_bytes < page + 4 * kStoreBlock || page > kMostRecordBytes) {
    return invalid_argument(fmt::format("the limit of {} bytes of the KV store {} leaves {} to a segment, a page takes {}",
                                        options.limit_bytes, options.root, store->options_.segment_bytes, page));
  }
  // A folder that cannot be read now is an empty store that looks again.
  static_cast<void>(store->refresh());
  return store;
}

SegmentStore::~SegmentStore() { static_cast<void>(seal()); }

bool SegmentStore::is_live(uint32_t segment, int64_t now_s) const {
  const Segment& at = segments_[segment];
  return at.live && (at.header.expires_s == 0 || at.header.expires_s > now_s);
}

size_t SegmentStore::match(std::span<const PageKey> keys) const {
  constexpr size_t kAhead = 8;
  const int64_t now = now_s();
  const std::lock_guard lock(index_);
  for (size_t i = 0; i < std::min(kAhead, keys.size()); ++i) pages_.prefetch(keys[i]);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) pages_.prefetch(keys[i + kAhead]);
    const PageLocation* found = pages_.find(keys[i]);
    if (!found || !is_live(found->segment, now)) return i;
  }
  return keys.size();
}

bool SegmentStore::contains(RecordKind kind, const PageKey& key) const {
  const int64_t now = now_s();
  const std::lock_guard lock(index_);
  const PageLocation* found = locations(kind).find(key);
  return found && is_live(found->segment, now);
}

MissReason SegmentStore::why_missing(const PageKey& key) const {
  const int64_t now = now_s();
  const std::lock_guard lock(index_);
  const PageLocation* found = pages_.find(key);
  if (!found) return MissReason::kNew;
  if (is_live(found->segment, now)) return MissReason::kNone;
  const int64_t expires_s = segments_[found->segment].header.expires_s;
  return expires_s != 0 && expires_s <= now ? MissReason::kExpired : MissReason::kEvicted;
}

SegmentStoreStats SegmentStore::stats() const {
  const std::lock_guard lock(index_);
  SegmentStoreStats out = stats_;
  out.memory_bytes = disk_.served_bytes();
  for (const Segment& segment : segments_) {
    if (!segment.live) continue;
    ++out.segments;
    out.stored_bytes += segment.bytes;
  }
  out.index_bytes = static_cast<int64_t>(pages_.memory_bytes() + snapshots_.memory_bytes());
  return out;
}

}  // namespace deepinfer
