#include <algorithm>
#include <utility>

#include "kvcache/tiers/segment_store.h"

namespace deepinfer {
namespace {

// A read that fails may be one bad sector; this many after each other are a disk that is gone.
constexpr int64_t kFaultsUntilPause = 4;

// What makes a sound record the wrong one.
bool is_the_same(const RecordView& stored, const RecordView& wanted) {
  return stored.kind == wanted.kind && stored.exact == wanted.exact && stored.key == wanted.key &&
         stored.parent == wanted.parent && stored.tenant == wanted.tenant &&
         std::equal(stored.tokens.begin(), stored.tokens.end(), wanted.tokens.begin(), wanted.tokens.end());
}

}  // namespace

StoreRead SegmentStore::read(const RecordView& wanted, std::span<uint8_t> payload) {
  BlockBuffer buffer(record_bytes(wanted.tokens.size(), payload.size()));
  RecordView record = wanted;
  record.image = buffer.bytes();
  record.payload = record.image.subspan(record_payload_at(wanted.tokens.size()), payload.size());
  StoreRead out = StoreRead::kMiss;
  read({&record, 1}, {&out, 1});
  if (out == StoreRead::kHit || out == StoreRead::kHitAgeing)
    std::copy(record.payload.begin(), record.payload.end(), payload.begin());
  return out;
}

void SegmentStore::read(std::span<const RecordView> wanted, std::span<StoreRead> out) {
  std::vector<Place> places(wanted.size());
  {
    const int64_t now = now_s();
    const std::lock_guard lock(index_);
    for (size_t i = 0; i < wanted.size(); ++i) out[i] = find(wanted[i], now, places[i]);
  }
  const auto follows = [&](size_t i) {
    const std::span<uint8_t> before = wanted[i - 1].image;
    const PageLocation &at = places[i - 1].at, &next = places[i].at;
    return at.segment == next.segment && at.first_block + before.size() / kStoreBlock == next.first_block &&
           before.data() + before.size() == wanted[i].image.data();
  };
  for (size_t begin = 0, end = 0; begin < wanted.size(); begin = end) {
    for (end = begin + 1; out[begin] == StoreRead::kHit && end < wanted.size() && out[end] == StoreRead::kHit && follows(end);)
      ++end;
    if (out[begin] != StoreRead::kHit) continue;
    read_run(wanted.subspan(begin, end - begin), std::span(places).subspan(begin, end - begin), out.subspan(begin, end - begin));
  }
}

StoreRead SegmentStore::find(const RecordView& wanted, int64_t now_s, Place& out) const {
  const PageLocation* found = locations(wanted.kind).find(wanted.key);
  if (!found || !is_live(found->segment, now_s)) return StoreRead::kMiss;
  if (pace_us() < read_again_us_) return StoreRead::kFault;
  const SegmentHeader& header = segments_[found->segment].header;
  out = {*found, header.identity, is_ageing(options_.lives, header.retention, header.expires_s, now_s)};
  return StoreRead::kHit;
}

void SegmentStore::read_run(std::span<const RecordView> wanted, std::span<const Place> places, std::span<StoreRead> out) {
  std::fill(out.begin(), out.end(), StoreRead::kFault);
  const std::shared_ptr<DiskFile> file = file_of(places[0].at.segment);
  if (!file) return;
  const uint8_t* end = wanted.back().image.data() + wanted.back().image.size();
  const Status got = file->read(int64_t{places[0].at.first_block} * kStoreBlock,
                                {wanted[0].image.data(), static_cast<size_t>(end - wanted[0].image.data())});
  if (!got && wanted.size() > 1) {
    // One bad place costs what lies there, not its neighbours.
    for (size_t i = 0; i < wanted.size(); ++i) read_run(wanted.subspan(i, 1), places.subspan(i, 1), out.subspan(i, 1));
    return;
  }
  if (!got) {
    read_failed(wanted[0], places[0].at, got.error());
    if (got.error().code == ErrorCode::kCorrupt) out[0] = StoreRead::kMiss;
    return;
  }
  for (size_t i = 0; i < wanted.size(); ++i) out[i] = accept(wanted[i], places[i]);
}

// What lies in the image, if it is what is wanted.
StoreRead SegmentStore::accept(const RecordView& wanted, const Place& place) {
  const auto record = decode_record(place.identity, uint64_t{place.at.first_block} * kStoreBlock, wanted.image);
  if (!record) {
    read_failed(wanted, place.at, record.error());
    return StoreRead::kMiss;
  }
  const bool same = decrypt_record(options_.cipher.get(), wanted.image) && is_the_same(*record, wanted) &&
                    record->payload.size() == wanted.payload.size();
  const std::lock_guard lock(index_);
  faults_in_a_row_ = 0;
  if (!same) {
    // Somebody else's page under the same key stays for them.
    ++stats_.wrong_records;
    return StoreRead::kMiss;
  }
  ++stats_.read_records;
  stats_.read_bytes += static_cast<int64_t>(wanted.payload.size());
  return place.ageing ? StoreRead::kHitAgeing : StoreRead::kHit;
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
  read_again_us_ = pace_us() + options_.retry_us;
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

}  // namespace deepinfer
