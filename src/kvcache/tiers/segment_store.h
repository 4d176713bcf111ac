// kvcache/tiers/segment_store.h - finished pages and snapshots on a disk: kept for days, found again after any death.
//
// A log of segments below one folder, one set of files per retention class; the files alone are the truth, the index in RAM is
// made from them. Several processes may share the folder: each writes segments of its own and, at refresh(), finds the others'.
// Promise: put() that returned without error is found by every later open(), also after kill -9; a read that hits gives exactly
// the bytes that were put under that key, parent, tenant and token ids, whatever the disk did, else it is a miss and a
// counter. The bytes found in the folder never exceed the limit by what this process writes. A disk that is full, broken,
// read-only or gone makes misses and refused puts, and is tried again later; it never makes a hit wrong or a call wait.
// Threads: every call from any thread; put(), refresh() and seal() one after another, reads beside them.
//
//   DI_TRY(auto store, SegmentStore::open(disk, clock, {.root = folder, .fingerprint = ..., .page_tokens = 64, ...}));
//   DI_CHECK_OK(store->put(RetentionClass::kChat, records));
//   const size_t pages = store->match(keys);                     // a hint: read() decides
//   if (store->read(wanted, payload) != StoreRead::kMiss) ...    // wanted: all but the payload
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "core/prefix_verdict.h"
#include "kvcache/tiers/page_locations.h"
#include "kvcache/tiers/retention.h"
#include "kvcache/tiers/segment_file.h"

namespace deepinfer {

struct SegmentStoreOptions {
  std::string root;
  StoreFingerprint fingerprint{};
  uint32_t page_tokens = 0, page_bytes = 0;
  std::vector<StoredSection> sections;
  int64_t limit_bytes = 10'000'000'000;  // of everything below root
  int64_t segment_bytes = 256 << 20;     // at most; smaller when the limit is
  int64_t retry_us = 30'000'000;         // until a disk that failed is tried again
  int64_t open_files = 256;              // segments held open for reading
  uint64_t writer_seed = 0;              // process, machine: makes writers that start together differ
  const Clock* pace = nullptr;           // of retries, never set back; null: the store's clock
  RetentionLives lives;
  std::shared_ptr<const StoreCipher> cipher;  // null: records are not encrypted
};

enum class StoreRead {
  kMiss,
  kFault,  // a miss because the disk did not answer, now or just before
  kHit,
  kHitAgeing,  // put it again: its segment expires soon
};

struct SegmentStoreStats {
  int64_t segments = 0, stored_bytes = 0;
  int64_t written_records = 0, written_bytes = 0, read_records = 0, read_bytes = 0;
  int64_t memory_bytes = 0;  // of what was read, checks and neighbours included, came from memory (cached_disk.h)
  int64_t removed_segments = 0;
  // Each damaged record counts once: it is forgotten.
  int64_t corrupt_records = 0, corrupt_segments = 0, wrong_records = 0;  // wrong: sound, but another key, tenant or tokens
  int64_t read_faults = 0, write_faults = 0;
  std::string last_error;  // of a fault
  int64_t index_bytes = 0;
};

class SegmentStore {
 public:
  // Works also where nothing can be written or read yet: what the disk refuses is tried again later. `disk` and `clock`
  // (seconds since 1970 are taken from it) must outlive the store.
  static Result<std::unique_ptr<SegmentStore>> open(StoreDisk& disk, const Clock& clock, const SegmentStoreOptions& options);
  ~SegmentStore();  // seals
  SegmentStore(const SegmentStore&) = delete;
  SegmentStore& operator=(const SegmentStore&) = delete;

  // Acknowledged together; of records refused by an error some may be stored. What is stored already is not written again.
  Status put(RetentionClass retention, std::span<const RecordView> records);
  // How many of `keys`, from the first on, have a stored page. Neither waits for the disk nor allocates.
  size_t match(std::span<const PageKey> keys) const;
  bool contains(RecordKind kind, const PageKey& key) const;
  // kNone: it is there. kExpired, kEvicted: it was, as far as the table remembers. kNew: never heard of.
  MissReason why_missing(const PageKey& key) const;
  // This tenant's prompts of another model, program or layout below the root begin with this page.
  bool known_elsewhere(uint64_t tenant, std::span<const TokenId> first_page) const;
  // How often segments were found gone that this process did not remove.
  uint32_t losses() const { return losses_.load(std::memory_order_relaxed); }
  // Copies the payload of the record that is `wanted` in all but its payload. REQUIRES: payload has the stored length.
  StoreRead read(const RecordView& wanted, std::span<uint8_t> payload);
  // The same without a copy: each record comes whole into its image, which holds `payload` in its place. Records that lie behind
  // each other, in a file and in memory, come in one read.
  void read(std::span<const RecordView> wanted, std::span<StoreRead> out);

  // Looks at the folder again: what others wrote, what expired, what is gone.
  Status refresh();
  // Ends the segments being written; the next put begins new ones.
  Status seal();

  SegmentStoreStats stats() const;

 private:
  struct Segment {
    std::string path;  // below root
    SegmentHeader header;
    int64_t end = 0, bytes = 0;
    bool sealed = false, live = true;
    std::shared_ptr<DiskFile> file;  // open for reading; readers keep it beyond unlink
    int64_t last_use = 0;
  };
  struct Writing {
    std::unique_ptr<SegmentWriter> writer;
    uint32_t segment = 0;
    int64_t closes_s = 0;
  };

  struct Other {
    int64_t created_s = 0, expires_s = 0;  // of a segment of another fingerprint; 0: never
  };

  SegmentStore(StoreDisk& disk, const Clock& clock, const SegmentStoreOptions& options);
  int64_t pace_us() const { return (options_.pace ? options_.pace : &clock_)->now_us(); }
  int64_t now_s() const { return clock_.now_us() / 1'000'000; }
  std::string full(const std::string& path) const { return options_.root + "/" + path; }
  bool is_live(uint32_t segment, int64_t now_s) const;
  PageLocations& locations(RecordKind kind) { return kind == RecordKind::kPage ? pages_ : snapshots_; }
  const PageLocations& locations(RecordKind kind) const { return kind == RecordKind::kPage ? pages_ : snapshots_; }

  // Writing (segment_store_put.cc); all hold writing_.
  Status check(const RecordView& record) const;
  bool is_wanted(RetentionClass retention, const RecordView& record) const;
  Status put_fresh(RetentionClass retention, std::span<const RecordView> records);
  Status begin_segment(RetentionClass retention);
  Status take_writer_lock();
  Status make_room(RetentionClass retention);
  std::vector<StoreFile> files_below_root(int64_t& bytes_to_come);
  Status end_segment(RetentionClass retention);
  void write_failed(RetentionClass retention, const Error& error);
  void remove_segment(const std::string& path);

  // Finding segments (segment_store_load.cc); all hold writing_.
  Status look();
  void forget(Segment& segment);  // holds index_
  void forget_vanished(const std::vector<DiskEntry>& listed);
  void load(const SegmentName& name, int64_t bytes);
  // Seals what a dead writer left; false when its writer lives or nothing can be written here.
  bool recover(const SegmentName& name, uint64_t identity, SegmentContent& content);
  void reject(const SegmentName& name, const Error& error);
  void look_at_others();
  Result<Other> look_at_other(const std::string& path);
  void spare_neighbours(std::span<StoreFile> files);
  bool is_ours(const SegmentHeader& header, const SegmentName& name) const;
  uint32_t add_segment(Segment segment);
  void add_entries(uint32_t segment, std::span<const TableEntry> entries);

  // Reading (segment_store_read.cc).
  struct Place {
    PageLocation at;
    uint64_t identity = 0;
    bool ageing = false;
  };
  StoreRead find(const RecordView& wanted, int64_t now_s, Place& out) const;  // holds index_
  void read_run(std::span<const RecordView> wanted, std::span<const Place> places, std::span<StoreRead> out);
  StoreRead accept(const RecordView& wanted, const Place& place);
  std::shared_ptr<DiskFile> file_of(uint32_t segment);
  void close_oldest();
  void read_failed(const RecordView& wanted, PageLocation location, const Error& error);
  void count_fault();

  StoreDisk& disk_;
  const Clock& clock_;
  const SegmentStoreOptions options_;
  const std::string folder_;  // of this fingerprint, below root

  std::mutex writing_;  // taken before index_; guards what follows up to it
  std::array<Writing, kNumRetentionClasses> active_;
  std::unique_ptr<DiskLock> writer_lock_;
  uint64_t writer_ = 0, next_sequence_ = 1;
  int64_t write_again_us_ = 0;
  std::unordered_set<std::string> rejected_;       // paths of segments that are not for us
  std::unordered_map<std::string, Other> others_;  // segments of other fingerprints, by path
  int64_t look_again_us_ = 0;                      // at them
  int32_t others_read_ = 0;

  mutable std::mutex index_;       // never held while the disk is asked; guards what follows
  std::vector<Segment> segments_;  // numbers are never used again
  std::unordered_map<std::string, uint32_t> by_path_;
  PageLocations pages_, snapshots_;
  std::unordered_set<uint64_t> other_starts_;  // tenants' first pages in segments of other fingerprints
  int64_t open_files_ = 0, uses_ = 0;
  int64_t read_again_us_ = 0, faults_in_a_row_ = 0;
  SegmentStoreStats stats_;
  std::atomic<uint32_t> losses_{0};
};

}  // namespace deepinfer
