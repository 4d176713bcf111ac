// kvcache/tiers/store_tools.h - looking into the folder of a store from outside, beside the servers that use it.
//
// Promise: survey() changes nothing. drop() removes what was asked for from every segment that no living process writes: whole
// files where it can; where others' records are in the same file these move, with their expiry, into a new one first.
// Threads: pure apart from the disk.
//
//   DI_TRY(const StoreSurvey survey, survey_store(disk, folder, true));
//   DI_TRY(const StoreDrop dropped, drop_from_store(disk, folder, {.tenant = tag}, seed));
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "kvcache/tiers/retention.h"
#include "kvcache/tiers/store_disk.h"

namespace deepinfer {

// What records carry of a tenant.
inline uint64_t tenant_tag(std::string_view tenant) { return hash_bytes(tenant); }

struct TenantShare {
  int64_t records = 0, bytes = 0;
};

struct SurveyedSegment {
  std::string path;  // below the folder
  int64_t bytes = 0;
  SegmentName name;
  SegmentHeader header;
  bool sealed = false;
  int64_t pages = 0, snapshots = 0;
  bool locked = false;  // encrypted, and not with the key at hand: of its records the checksums alone can be looked at
  int64_t damaged = 0;  // records that fail their check, of all if everything was read
  std::map<uint64_t, TenantShare> tenants;
  std::string error;  // why nothing of it can be read
};

struct StoreSurvey {
  std::vector<SurveyedSegment> segments;
  int64_t other_files = 0, other_bytes = 0;
};

// `read_all`: every record is read and checked, else the tables of sealed segments are believed. `cipher`: the key at hand, or
// null.
Result<StoreSurvey> survey_store(StoreDisk& disk, const std::string& folder, bool read_all, const StoreCipher* cipher = nullptr);

// What a record must be to go; nothing set: all.
struct StoreSelection {
  std::optional<uint64_t> tenant;
  std::optional<RetentionClass> retention;
  // Prompts that begin with these ids, from their first page on: whatever holds a part of that beginning, or continues it.
  std::vector<TokenId> prefix;
};

struct StoreDrop {
  int64_t removed_segments = 0, rewritten_segments = 0, removed_records = 0;
  std::vector<std::string> in_use;  // segments with such records that a living process writes
};

Result<StoreDrop> drop_from_store(StoreDisk& disk, const std::string& folder, const StoreSelection& selection,
                                  uint64_t writer_seed, const StoreCipher* cipher = nullptr);

}  // namespace deepinfer
