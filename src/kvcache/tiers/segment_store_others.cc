// Segments of other models, programs and layouts below the same root: they expire by age like our own, and a prompt that misses
// here because it was stored there is told so.
#include <iterator>
#include <map>
#include <utility>

#include "kvcache/tiers/segment_store.h"

namespace deepinfer {
namespace {

constexpr int64_t kLookUs = 3'600'000'000;
// Explanations are worth this much reading at a start: tables of as many segments, 16 million pages at most.
constexpr int32_t kMostTables = 64;
constexpr size_t kMostStarts = 1 << 17;

uint64_t name_of(uint64_t tenant, uint64_t start) { return tenant ^ start * 0x9e3779b97f4a7c15u; }

}  // namespace

void SegmentStore::look_at_others() {
  look_again_us_ = pace_us() + kLookUs;
  const auto listed = disk_.list(options_.root);
  if (!listed) return;
  std::unordered_map<std::string, Other> known = std::exchange(others_, {});
  for (const DiskEntry& entry : *listed) {
    SegmentName name;
    if (!parse_segment_path(entry.path, name) || name.fingerprint == folder_) continue;
    const auto old = known.find(entry.path);
    const Result<Other> other = old != known.end() ? Result<Other>(old->second) : look_at_other(entry.path);
    if (!other) continue;  // its writer may be about to begin it
    if (other->expires_s != 0 && other->expires_s <= now_s()) {
      remove_segment(entry.path);
    } else {
      others_[entry.path] = *other;
    }
  }
}

Result<SegmentStore::Other> SegmentStore::look_at_other(const std::string& path) {
  DI_TRY(const auto file, disk_.open(full(path), false));
  DI_TRY(const SegmentHeader header, load_header(*file));
  const Other out{header.created_s, header.expires_s};
  if (others_read_ == kMostTables) return out;
  const auto content = load_sealed(*file, header.identity);
  if (!content) return out;
  ++others_read_;
  const std::lock_guard lock(index_);
  for (const TableEntry& entry : content->entries) {
    if (entry.start != 0 && other_starts_.size() < kMostStarts) other_starts_.insert(name_of(entry.tenant, entry.start));
  }
  return out;
}

// Whose writer lives is no leftover: its segments go by age like ours, and the newest of each class, which it may be writing,
// stay.
void SegmentStore::spare_neighbours(std::span<StoreFile> files) {
  std::map<std::pair<std::string, uint64_t>, bool> living;
  SegmentName name, next;
  for (size_t i = 0; i < files.size(); ++i) {
    StoreFile& file = files[i];
    if (!file.other_fingerprint || !parse_segment_path(file.path, name)) continue;
    const auto [writer, is_new] = living.try_emplace({name.fingerprint, name.writer});
    if (is_new) writer->second = !disk_.lock(full(name.fingerprint + "/" + lock_name(name.writer)));
    if (!writer->second) continue;
    file.other_fingerprint = false;
    const bool goes_on = i + 1 < files.size() && parse_segment_path(files[i + 1].path, next) &&
                         next.fingerprint == name.fingerprint && next.writer == name.writer && next.retention == name.retention;
    file.written = !goes_on || !others_.contains(file.path);
  }
}

bool SegmentStore::known_elsewhere(uint64_t tenant, std::span<const TokenId> first_page) const {
  const std::lock_guard lock(index_);
  return other_starts_.contains(name_of(tenant, start_mark(first_page)));
}

}  // namespace deepinfer
