#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kvcache/tiers/segment_store.h"

namespace deepinfer {
namespace {

constexpr uint64_t kWriterAttempts = 16;

// splitmix64: neighbouring seeds give unlike writers.
uint64_t mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

int64_t bytes_of(const RecordView& record) { return record_bytes(record.tokens.size(), record.payload.size()); }

}  // namespace

Status SegmentStore::put(RetentionClass retention, std::span<const RecordView> records) {
  const std::lock_guard lock(writing_);
  std::vector<RecordView> fresh;
  for (const RecordView& record : records) {
    DI_CHECK_OK(check(record));
    if (is_wanted(retention, record)) fresh.push_back(record);
  }
  if (fresh.empty()) return {};
  if (pace_us() < write_again_us_) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the KV store {} could not be written and is tried again later", options_.root)};
  }
  Status done = put_fresh(retention, fresh);
  // kTooLarge: our own limits, not the disk.
  if (!done && done.error().code != ErrorCode::kTooLarge) write_failed(retention, done.error());
  return done;
}

Status SegmentStore::check(const RecordView& record) const {
  const bool is_page = record.kind == RecordKind::kPage;
  if (record.tokens.size() != options_.page_tokens || (is_page && record.payload.size() != options_.page_bytes)) {
    return invalid_argument(fmt::format("a record of {} tokens and {} bytes, a page has {} and {}", record.tokens.size(),
                                        record.payload.size(), options_.page_tokens, options_.page_bytes));
  }
  const int64_t bytes = bytes_of(record);
  if (bytes > kMostRecordBytes || bytes + 3 * kStoreBlock > options_.segment_bytes) {
    return too_large(fmt::format("a record of {} bytes does not fit into a segment of {}", bytes, options_.segment_bytes));
  }
  return {};
}

bool SegmentStore::is_wanted(RetentionClass retention, const RecordView& record) const {
  const int64_t now = now_s();
  const std::lock_guard lock(index_);
  const PageLocation* found = locations(record.kind).find(record.key);
  if (!found || !is_live(found->segment, now)) return true;
  const SegmentHeader& header = segments_[found->segment].header;
  if (header.expires_s == 0) return false;
  // By the class asked for now, so that a page of minutes is written again for days, and for ever.
  return retention == RetentionClass::kPinned || is_ageing(options_.lives, retention, header.expires_s, now);
}

Status SegmentStore::put_fresh(RetentionClass retention, std::span<const RecordView> records) {
  Writing& active = active_[static_cast<size_t>(retention)];
  if (active.writer && active.closes_s != 0 && now_s() >= active.closes_s) DI_CHECK_OK(end_segment(retention));
  while (!records.empty()) {
    if (!active.writer) DI_CHECK_OK(begin_segment(retention));
    size_t count = 0;
    int64_t bytes = 0;
    while (count < records.size()) {
      const int64_t more = bytes + bytes_of(records[count]);
      if (active.writer->sealed_bytes(count + 1, more) > options_.segment_bytes) break;
      bytes = more;
      ++count;
    }
    if (count > 0) {
      std::vector<TableEntry> written;
      const Status appended = active.writer->append(records.first(count), written);
      add_entries(active.segment, written);
      const std::lock_guard lock(index_);
      Segment& segment = segments_[active.segment];
      stats_.written_records += static_cast<int64_t>(written.size());
      stats_.written_bytes += active.writer->end() - segment.end;
      segment.end = segment.bytes = active.writer->end();
      if (!appended) return appended;
    }
    records = records.subspan(count);
    if (!records.empty()) DI_CHECK_OK(end_segment(retention));
  }
  return {};
}

Status SegmentStore::begin_segment(RetentionClass retention) {
  DI_CHECK_OK(make_room(retention));
  DI_CHECK_OK(take_writer_lock());
  const int64_t now = now_s();
  const SegmentLife life = segment_life(options_.lives, retention, now);
  SegmentHeader header{options_.fingerprint, writer_, next_sequence_++, now, life.expires_s};
  header.retention = retention;
  header.page_tokens = options_.page_tokens;
  header.page_bytes = options_.page_bytes;
  header.sections = options_.sections;
  const std::string folder = folder_ + "/" + retention_class_name(retention);
  DI_CHECK_OK(disk_.make_folders(full(folder)));
  const std::string path = segment_path({folder_, retention, writer_, header.sequence});
  auto writer = SegmentWriter::create(disk_, full(path), header, options_.cipher.get());
  Status synced = writer ? disk_.sync_folder(full(folder)) : Status(writer.error());
  if (!synced) {
    static_cast<void>(disk_.remove(full(path)));
    return synced;
  }
  Segment segment{path, header, kStoreBlock, kStoreBlock};
  active_[static_cast<size_t>(retention)] = {*std::move(writer), add_segment(std::move(segment)), life.closes_s};
  return {};
}

Status SegmentStore::take_writer_lock() {
  if (writer_lock_) return {};
  DI_CHECK_OK(disk_.make_folders(full(folder_)));
  DI_TRY(const auto files, disk_.list(full(folder_)));
  for (uint64_t attempt = 0; attempt < kWriterAttempts; ++attempt) {
    const uint64_t writer = mixed(options_.writer_seed ^ mixed(static_cast<uint64_t>(clock_.now_us()) + attempt));
    const bool taken = std::any_of(files.begin(), files.end(), [&](const DiskEntry& file) {
      SegmentName name;
      return parse_segment_path(folder_ + "/" + file.path, name) && name.writer == writer;
    });
    if (taken) continue;
    auto lock = disk_.lock(full(folder_ + "/" + lock_name(writer)));
    if (!lock && lock.error().code == ErrorCode::kUnavailable) continue;
    if (!lock) return lock.error();
    writer_lock_ = *std::move(lock);
    writer_ = writer;
    return {};
  }
  return Error{ErrorCode::kUnavailable, fmt::format("no name for a writer of the KV store {} is free", options_.root)};
}

std::vector<StoreFile> SegmentStore::files_below_root(int64_t& bytes_to_come) {
  std::vector<StoreFile> files;
  const auto listed = disk_.list(options_.root);
  if (!listed) return files;
  const std::lock_guard lock(index_);
  for (const DiskEntry& entry : *listed) {
    // What is no segment is nobody's to remove, but takes its place.
    StoreFile file{entry.path, entry.bytes, false, true};
    SegmentName name;
    if (parse_segment_path(entry.path, name)) {
      const auto known = by_path_.find(entry.path);
      file.retention = name.retention;
      file.other_fingerprint = known == by_path_.end();
      if (const auto other = others_.find(entry.path); other != others_.end())
        file.created_s = other->second.created_s, file.expires_s = other->second.expires_s;
      file.written = false;
      if (known != by_path_.end()) {
        const Segment& segment = segments_[known->second];
        file.written = !segment.sealed;
        file.created_s = segment.header.created_s;
        file.expires_s = segment.header.expires_s;
        if (!segment.sealed) bytes_to_come += std::max<int64_t>(options_.segment_bytes - entry.bytes, 0);
      }
    }
    files.push_back(std::move(file));
  }
  return files;
}

Status SegmentStore::make_room(RetentionClass retention) {
  DI_CHECK_OK(look());
  look_at_others();
  int64_t total = 0, pinned = options_.segment_bytes;
  std::vector<StoreFile> files = files_below_root(total);
  spare_neighbours(files);
  for (const StoreFile& file : files) {
    total += file.bytes;
    if (file.retention == RetentionClass::kPinned) pinned += file.bytes;
  }
  if (retention == RetentionClass::kPinned && pinned > options_.limit_bytes / 2) {
    return too_large(fmt::format("pinned pages take half of the limit of {} bytes of the KV store {}: drop some",
                                 options_.limit_bytes, options_.root));
  }
  int64_t wanted = total + options_.segment_bytes - options_.limit_bytes;
  for (const size_t victim : choose_victims(files, wanted, now_s())) {
    remove_segment(files[victim].path);
    wanted -= files[victim].bytes;
  }
  if (wanted <= 0) return {};
  return exhausted(fmt::format("the limit of {} bytes of the KV store {} is taken by what cannot be removed",
                               options_.limit_bytes, options_.root));
}

void SegmentStore::remove_segment(const std::string& path) {
  // Forgotten first: who reads it now has it open.
  {
    const std::lock_guard lock(index_);
    const auto known = by_path_.find(path);
    if (known != by_path_.end()) forget(segments_[known->second]);
    ++stats_.removed_segments;
  }
  static_cast<void>(disk_.remove(full(path)));
}

Status SegmentStore::end_segment(RetentionClass retention) {
  Writing ended = std::exchange(active_[static_cast<size_t>(retention)], {});
  if (!ended.writer) return {};
  const int64_t bytes = ended.writer->sealed_bytes(0, 0);
  DI_CHECK_OK(ended.writer->seal());
  const std::lock_guard lock(index_);
  segments_[ended.segment].sealed = true;
  segments_[ended.segment].bytes = bytes;
  return {};
}

void SegmentStore::write_failed(RetentionClass retention, const Error& error) {
  write_again_us_ = pace_us() + options_.retry_us;
  static_cast<void>(end_segment(retention));
  const std::lock_guard lock(index_);
  ++stats_.write_faults;
  stats_.last_error = error.message;
}

Status SegmentStore::seal() {
  const std::lock_guard lock(writing_);
  Status out;
  for (size_t i = 0; i < kNumRetentionClasses; ++i) {
    Status sealed = end_segment(static_cast<RetentionClass>(i));
    if (!sealed && out) out = std::move(sealed);
  }
  return out;
}

}  // namespace deepinfer
