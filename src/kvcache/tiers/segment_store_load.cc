#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "kvcache/tiers/segment_store.h"

namespace deepinfer {

Status SegmentStore::refresh() {
  const std::lock_guard lock(writing_);
  Status looked = look();
  if (looked && pace_us() >= look_again_us_) look_at_others();
  if (looked) return looked;
  const std::lock_guard counting(index_);
  ++stats_.read_faults;
  stats_.last_error = looked.error().message;
  return looked;
}

Status SegmentStore::look() {
  const int64_t now = now_s();
  for (size_t i = 0; i < kNumRetentionClasses; ++i) {
    const Writing& active = active_[i];
    if (active.writer && active.closes_s != 0 && now >= active.closes_s)
      static_cast<void>(end_segment(static_cast<RetentionClass>(i)));
  }
  auto listed = disk_.list(full(folder_));
  if (!listed && listed.error().code != ErrorCode::kNotFound) return listed.error();
  if (!listed) listed = std::vector<DiskEntry>();
  for (DiskEntry& entry : *listed) entry.path = folder_ + "/" + entry.path;
  forget_vanished(*listed);
  for (const DiskEntry& entry : *listed) {
    SegmentName name;
    if (parse_segment_path(entry.path, name) && !rejected_.contains(entry.path)) load(name, entry.bytes);
  }
  std::vector<std::string> expired;
  {
    const std::lock_guard lock(index_);
    for (const Segment& segment : segments_) {
      if (segment.live && !is_live(static_cast<uint32_t>(&segment - segments_.data()), now)) expired.push_back(segment.path);
    }
  }
  for (const std::string& path : expired) remove_segment(path);
  return {};
}

void SegmentStore::forget_vanished(const std::vector<DiskEntry>& listed) {
  std::unordered_set<std::string_view> there;
  for (const DiskEntry& entry : listed) there.insert(entry.path);
  bool lost_our_own = false;
  {
    const std::lock_guard lock(index_);
    for (uint32_t i = 0; i < segments_.size(); ++i) {
      Segment& segment = segments_[i];
      if (!segment.live || there.contains(segment.path)) continue;
      forget(segment);
      losses_.fetch_add(1, std::memory_order_relaxed);
      for (const Writing& active : active_) lost_our_own |= active.writer && active.segment == i;
    }
  }
  if (!lost_our_own) return;
  // The folder was taken away under us: another one may lie in its place, with no lock of ours in it.
  for (size_t i = 0; i < kNumRetentionClasses; ++i) static_cast<void>(end_segment(static_cast<RetentionClass>(i)));
  writer_lock_.reset();
}

void SegmentStore::forget(Segment& segment) {
  segment.live = false;
  if (segment.file) --open_files_;
  segment.file.reset();
  by_path_.erase(segment.path);
}

bool SegmentStore::is_ours(const SegmentHeader& header, const SegmentName& name) const {
  return header.fingerprint == options_.fingerprint && header.page_tokens == options_.page_tokens &&
         header.page_bytes == options_.page_bytes && header.sections == options_.sections && is_named(header, name);
}

void SegmentStore::load(const SegmentName& name, int64_t bytes) {
  const std::string path = segment_path(name);
  int64_t from = kStoreBlock;
  uint32_t segment = 0;
  bool known = false;
  {
    const std::lock_guard lock(index_);
    const auto found = by_path_.find(path);
    known = found != by_path_.end();
    if (known) segment = found->second;
    if (known && (segments_[segment].sealed || name.writer == writer_)) return;
    if (known) from = segments_[segment].end;
  }
  const auto file = disk_.open(full(path), false);
  if (!file) return;
  const auto header = load_header(**file);
  if (!header) return reject(name, header.error());
  if (!is_ours(*header, name))
    return reject(name, unsupported(fmt::format("{} is another model's or layout's, or misnamed", path)));
  auto content = load_segment(**file, header->identity, from);
  if (!content) return;
  if (!content->sealed) recover(name, header->identity, *content);
  if (const auto size = (*file)->size()) bytes = *size;
  if (!known) segment = add_segment({path, *header});
  add_entries(segment, content->entries);
  const std::lock_guard lock(index_);
  stats_.corrupt_records += content->damaged;
  Segment& at = segments_[segment];
  at.end = content->end;
  at.sealed = content->sealed;
  at.bytes = bytes;
}

bool SegmentStore::recover(const SegmentName& name, uint64_t identity, SegmentContent& content) {
  const auto lock = disk_.lock(full(name.fingerprint + "/" + lock_name(name.writer)));
  if (!lock) return false;
  auto file = disk_.open(full(segment_path(name)), true);
  if (!file) return false;
  // From the start, and again: between the first look and the lock the writer, or another finder, may have gone on.
  auto whole = load_segment(**file, identity, kStoreBlock);
  if (!whole) return false;
  content = *std::move(whole);
  if (content.sealed) return true;
  const auto writer = SegmentWriter::resume(*std::move(file), identity, content.end, content.entries);
  content.sealed = writer->seal().ok();
  return content.sealed;
}

void SegmentStore::reject(const SegmentName& name, const Error& error) {
  if (error.code != ErrorCode::kCorrupt && error.code != ErrorCode::kUnsupported) return;
  const std::string path = segment_path(name);
  bool orphan = false;
  if (error.code == ErrorCode::kCorrupt) {
    // A header that is not there yet belongs to a living writer. Of a dead one it never will be: nothing can be read here.
    const auto lock = disk_.lock(full(name.fingerprint + "/" + lock_name(name.writer)));
    if (!lock) return;
    orphan = true;
  }
  rejected_.insert(path);
  if (orphan) remove_segment(path);
  const std::lock_guard lock(index_);
  ++stats_.corrupt_segments;
  stats_.last_error = error.message;
}

uint32_t SegmentStore::add_segment(Segment segment) {
  const std::lock_guard lock(index_);
  const auto number = static_cast<uint32_t>(segments_.size());
  by_path_[segment.path] = number;
  segments_.push_back(std::move(segment));
  return number;
}

void SegmentStore::add_entries(uint32_t segment, std::span<const TableEntry> entries) {
  const int64_t now = now_s();
  const auto lives = [&](uint32_t other) { return is_live(other, now); };
  const std::lock_guard lock(index_);
  for (const TableEntry& entry : entries) {
    const auto kind = static_cast<RecordKind>(entry.kind);
    if (kind != RecordKind::kPage && kind != RecordKind::kSnapshot) continue;
    locations(kind).insert(entry.key, {segment, entry.first_block}, lives);
  }
}

}  // namespace deepinfer
