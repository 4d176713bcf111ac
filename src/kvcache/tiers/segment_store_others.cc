// Segments of other models, programs and layouts below the same root: they expire by age like our own, and a prompt that misses
// here because it was stored there is told so.
#include <iterator>
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
  look_again_us_ = clock_.now_us() + kLookUs;
  const auto listed = disk_.list(options_.root);
  if (!listed) return;
  std::unordered_map<std::string, int64_t> known = std::exchange(others_, {});
  for (const DiskEntry& entry : *listed) {
    SegmentName name;
    if (!parse_segment_path(entry.path, name) || name.fingerprint == folder_) continue;
    const auto old = known.find(entry.path);
    const Result<int64_t> expires_s = old != known.end() ? Result<int64_t>(old->second) : look_at_other(entry.path);
    if (!expires_s) continue;  // its writer may be about to begin it
    if (*expires_s != 0 && *expires_s <= now_s()) {
      remove_segment(entry.path);
    } else {
      others_[entry.path] = *expires_s;
    }
  }
}

// When it expires.
Result<int64_t> SegmentStore::look_at_other(const std::string& path) {
  DI_TRY(const auto file, disk_.open(full(path), false));
  DI_TRY(const SegmentHeader header, load_header(*file));
  if (others_read_ == kMostTables) return header.expires_s;
  const auto content = load_sealed(*file, header.identity);
  if (!content) return header.expires_s;
  ++others_read_;
  const std::lock_guard lock(index_);
  for (const TableEntry& entry : content->entries) {
    if (entry.start != 0 && other_starts_.size() < kMostStarts) other_starts_.insert(name_of(entry.tenant, entry.start));
  }
  return header.expires_s;
}

bool SegmentStore::known_elsewhere(uint64_t tenant, std::span<const TokenId> first_page) const {
  const std::lock_guard lock(index_);
  return other_starts_.contains(name_of(tenant, start_mark(first_page)));
}

}  // namespace deepinfer
