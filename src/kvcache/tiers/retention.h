// kvcache/tiers/retention.h - how long stored pages live and which files make room for new ones (kv_cache.md, section 8).
//
// Pure: times and sizes in, decisions out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "kvcache/tiers/segment_format.h"

namespace deepinfer {

inline constexpr size_t kNumRetentionClasses = 4;
const char* retention_class_name(RetentionClass retention);
std::optional<RetentionClass> retention_class_named(std::string_view name);

struct RetentionLives {
  // Seconds by class; 0: until dropped.
  std::array<int64_t, kNumRetentionClasses> life_s = {30 * 60, 3 * 86'400, 7 * 86'400, 0};
};

// A segment of this class created now takes records before `closes_s` and expires at `expires_s` (0: neither).
struct SegmentLife {
  int64_t closes_s = 0, expires_s = 0;
};
SegmentLife segment_life(const RetentionLives& lives, RetentionClass retention, int64_t now_s);
// A page read in the last quarter of its segment's life is worth writing again.
bool is_ageing(const RetentionLives& lives, RetentionClass retention, int64_t expires_s, int64_t now_s);

// What the name of a segment says: FINGERPRINT/CLASS/WRITER-SEQUENCE.seg below the root.
struct SegmentName {
  std::string fingerprint;  // 16 digits
  RetentionClass retention = RetentionClass::kChat;
  uint64_t writer = 0, sequence = 0;
};
std::string segment_path(const SegmentName& name);
// The header is that of the file of this name: it was not renamed or exchanged.
bool is_named(const SegmentHeader& header, const SegmentName& name);
bool parse_segment_path(std::string_view path, SegmentName& out);
std::string folder_name(const StoreFingerprint& fingerprint);
std::string lock_name(uint64_t writer);

// A file that may make room.
struct StoreFile {
  std::string path;
  int64_t bytes = 0;
  bool other_fingerprint = false;
  bool written = false;  // somebody appends to it
  RetentionClass retention = RetentionClass::kChat;
  int64_t created_s = 0, expires_s = 0;  // 0: unknown, or never
};
// Files to unlink, by index: what expired, then, until `wanted` bytes are free, other fingerprints and the oldest segment of the
// least valuable class. Pinned ones never, nor those being written.
std::vector<size_t> choose_victims(std::span<const StoreFile> files, int64_t wanted, int64_t now_s);

}  // namespace deepinfer
