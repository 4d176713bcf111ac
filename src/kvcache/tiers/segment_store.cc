#include "kvcache/tiers/segment_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace deepinfer {
namespace {

// A read that fails may be one bad sector; this many after each other are a disk that is gone.
constexpr int64_t kFaultsUntilPause = 4;
// Each class may have a segment being written; with more of them than that below the limit, something can always be removed.
constexpr int64_t kSegmentsBelowLimit = 16;

SegmentStoreOptions fitted(SegmentStoreOptions options) {
  const int64_t most = options.limit_bytes / kSegmentsBelowLimit / kStoreBlock * kStoreBlock;
  options.segment_bytes = std::min(options.segment_bytes, most);
  return options;
}

// What makes a sound record the wrong one.
bool is_the_same(const RecordView& stored, const RecordView& wanted) {
  return stored.kind == wanted.kind && stored.exact == wanted.exact && stored.key == wanted.key &&
         stored.parent == wanted.parent && stored.tenant == wanted.tenant &&
         std::equal(stored.tokens.begin(), stored.tokens.end(), wanted.tokens.begin(), wanted.tokens.end());
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

StoreRead SegmentStore::read(const RecordView& wanted, std::span<uint8_t> payload) {
  PageLocation at;
  uint64_t identity = 0;
  bool ageing = false;
  {
    const int64_t now = now_s();
    const std::lock_guard lock(index_);
    const PageLocation* found = locations(wanted.kind).find(wanted.key);
    if (!found || !is_live(found->segment, now)) return StoreRead::kMiss;
    if (clock_.now_us() < read_again_us_) return StoreRead::kFault;
    at = *found;
    const SegmentHeader& header = segments_[at.segment].header;
    identity = header.identity;
    ageing = is_ageing(options_.lives, header.retention, header.expires_s, now);
  }
  const std::shared_ptr<DiskFile> file = file_of(at.segment);
  if (!file) return StoreRead::kFault;
  const int64_t offset = int64_t{at.first_block} * kStoreBlock;
  BlockBuffer buffer(record_bytes(wanted.tokens.size(), payload.size()));
  const Status got = file->read(offset, buffer.bytes());
  if (!got) {
    read_failed(wanted, at, got.error());
    return got.error().code == ErrorCode::kCorrupt ? StoreRead::kMiss : StoreRead::kFault;
  }
  const auto record = decode_record(identity, static_cast<uint64_t>(offset), buffer.bytes());
  if (!record) {
    read_failed(wanted, at, record.error());
    return StoreRead::kMiss;
  }
  const bool same = is_the_same(*record, wanted) && record->payload.size() == payload.size();
  if (same) std::copy(record->payload.begin(), record->payload.end(), payload.begin());
  const std::lock_guard lock(index_);
  faults_in_a_row_ = 0;
  if (!same) {
    // Somebody else's page under the same key stays for them.
    ++stats_.wrong_records;
    return StoreRead::kMiss;
  }
  ++stats_.read_records;
  stats_.read_bytes += static_cast<int64_t>(payload.size());
  return ageing ? StoreRead::kHitAgeing : StoreRead::kHit;
}

std::shared_ptr<DiskFile> SegmentStore::file_of(uint32_t segment) {
  std::string path;
  {
    const std::lock_guard lock(index_);
    Segment& at = segments_[segment];
    at.last_use = ++uses_;
    if (at.file) return at.file;
    path = at.path;
  }
  auto opened = disk_.open(full(path), false);
  const std::lock_guard lock(index_);
  Segment& at = segments_[segment];
  if (!opened) {
    stats_.last_error = opened.error().message;
    count_fault();
    // Unlinked by another process. If it is there again some day, refresh() finds it as a new one.
    if (opened.error().code == ErrorCode::kNotFound && at.live) forget(at);
    return nullptr;
  }
  const std::shared_ptr<DiskFile> file = *std::move(opened);
  if (at.file || !at.live) return file;
  if (open_files_ >= options_.open_files) close_oldest();
  at.file = file;
  ++open_files_;
  return file;
}

void SegmentStore::close_oldest() {
  Segment* oldest = nullptr;
  for (Segment& other : segments_) {
    if (other.file && (!oldest || other.last_use < oldest->last_use)) oldest = &other;
  }
  if (!oldest) return;
  oldest->file.reset();
  --open_files_;
}

void SegmentStore::count_fault() {
  ++stats_.read_faults;
  if (++faults_in_a_row_ < kFaultsUntilPause) return;
  faults_in_a_row_ = 0;
  read_again_us_ = clock_.now_us() + options_.retry_us;
}

void SegmentStore::read_failed(const RecordView& wanted, PageLocation location, const Error& error) {
  const std::lock_guard lock(index_);
  if (error.code != ErrorCode::kCorrupt && error.code != ErrorCode::kUnsupported) {
    stats_.last_error = error.message;
    return count_fault();
  }
  const size_t before = locations(wanted.kind).size();
  locations(wanted.kind).erase(wanted.key, location);
  // Readers that meet the same damage at the same time count it once.
  if (locations(wanted.kind).size() < before) ++stats_.corrupt_records;
}

SegmentStoreStats SegmentStore::stats() const {
  const std::lock_guard lock(index_);
  SegmentStoreStats out = stats_;
  for (const Segment& segment : segments_) {
    if (!segment.live) continue;
    ++out.segments;
    out.stored_bytes += segment.bytes;
  }
  out.index_bytes = static_cast<int64_t>(pages_.memory_bytes() + snapshots_.memory_bytes());
  return out;
}

}  // namespace deepinfer
