// kvcache/tiers/store_tier.h - the segment store beside an engine: written behind its steps, read ahead of its requests.
//
// The engine's thread stages what is worth keeping and asks for what a prompt begins with; a writer puts the one into
// segments, readers get the other, several pages at a time. Nobody waits for the disk but these threads.
// Promise: staging never waits: without a free slot the record is not stored, and counted. A load ends by its deadline
// whatever the disk does: with the pages that have come, each compared with what it must be, and a reason for the rest. What
// was staged and settled when the tier goes is written.
// Threads: the engine's thread, except stats(): any.
//
//   auto load = tier->load({...});
//   while (!load->is_over()) ...;                      // polled between steps
//   for (size_t i = 0; i < load->ready(); ++i) use(load->page(i)); tier->retire(std::move(load), device.record());
#pragma once

#include <semaphore.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "core/kv_layout.h"
#include "core/prefix_verdict.h"
#include "kvcache/page_transfer.h"
#include "kvcache/tiers/segment_store.h"
#include "kvcache/tiers/staging_ring.h"
#include "policy/store_load.h"

namespace deepinfer {

struct StoreTierOptions {
  StoreDisk* disk = nullptr;    // null: there is no store. Must outlive the tier
  const Clock* date = nullptr;  // microseconds since 1970; must outlive the tier
  std::string folder;
  std::string fingerprint;                    // of the program and the weights
  std::shared_ptr<const StoreCipher> cipher;  // null: not encrypted
  int64_t limit_bytes = 10'000'000'000;
  uint64_t writer_seed = 0;
  int64_t refresh_us = 5'000'000;  // how often the folder is looked at for what others wrote
  int64_t retry_us = 30'000'000;   // until a disk that failed is tried again
  StoreDeadline deadline;
  int32_t staged_pages = 256, staged_snapshots = 8;
  int32_t readers = 4;  // reads under way at once, each of several pages
};

struct StoreTierStats {
  bool on = false;
  int64_t loads = 0, loaded_pages = 0, loaded_snapshots = 0;
  int64_t late = 0, lost = 0;    // loads that ended by their deadline; records that could not be stored
  int64_t dropped = 0;           // records without a free slot
  double read_bytes_per_us = 0;  // measured; 0: not yet
  SegmentStoreStats segments;
};

class StoreTier;

// Pages and a state of the store for one prompt.
struct StoreLoad final : PageLoad {
  RetentionClass retention = RetentionClass::kChat;
  uint64_t tenant = 0;
  std::vector<PageKey> keys;    // of the page before the first (or the root), then of the pages
  std::vector<TokenId> tokens;  // of the pages
  PageKey border_key, border_parent;
  std::vector<TokenId> border_tokens;

  bool is_over() override;
  size_t ready() const { return come; }
  // Compared with these keys when they were read.
  size_t ready(std::span<const PageKey>) const override { return come; }
  const uint8_t* page(size_t i) const override { return records->bytes().data() + i * record_bytes + payload_at; }

  // The tier's own.
  StoreTier* tier = nullptr;
  enum class Item : uint8_t { kPending, kThere, kMissing, kFault };
  size_t items() const { return pages + (border > 0 ? 1 : 0); }
  std::unique_ptr<std::atomic<Item>[]> states;
  std::optional<BlockBuffer> records;  // of the pages, one behind the other, as they lie in files
  size_t record_bytes = 0, payload_at = 0;
  std::unique_ptr<uint8_t[]> snapshot_buffer;
  std::atomic<size_t> finished{0}, cut{std::numeric_limits<size_t>::max()};  // cut: the first page that has not come
  std::atomic<bool> abandoned{false};
  std::atomic<int64_t> begun_us{0};
  size_t next = 0, come = 0;
  int64_t deadline_us = 0;
  Ticket ticket = 0;
};

class StoreTier {
 public:
  // `exact`: pages are what a cold run computes.
  static Result<std::unique_ptr<StoreTier>> open(const StoreTierOptions& options, const KvLayout& layout, int64_t snapshot_bytes,
                                                 bool exact);
  ~StoreTier();
  StoreTier(const StoreTier&) = delete;
  StoreTier& operator=(const StoreTier&) = delete;

  // A slot to fill, or null; the caller sets its ticket.
  StagingRing::Slot* stage(RecordKind kind);
  // Something waits for settle().
  bool busy() const { return pages_.unsettled() || snapshots_.unsettled() || !retired_.empty(); }
  // What the device did up to `waited` is over, well or not.
  void settle(Ticket waited, bool good);

  size_t match(std::span<const PageKey> keys) const { return store_->match(keys); }
  bool has_snapshot(const PageKey& key) const { return store_->contains(RecordKind::kSnapshot, key); }
  MissReason why_missing(const PageKey& key) const { return store_->why_missing(key); }
  bool known_elsewhere(uint64_t tenant, std::span<const TokenId> first_page) const {
    return store_->known_elsewhere(tenant, first_page);
  }
  // After a load that was late the disk is left alone.
  bool rests() const { return clock_.now_us() < slow_until_us_.load(std::memory_order_relaxed); }
  // Grows when stored pages went that this process did not remove.
  uint32_t losses() const { return store_->losses(); }
  int64_t load_bytes(size_t pages, bool snapshot) const;
  // 0: unknown. Next to nothing for some time after a load that was late.
  double read_bytes_per_us() const;
  // Asked for and not retired.
  int32_t open_loads() const { return open_loads_; }

  std::shared_ptr<StoreLoad> load(std::shared_ptr<StoreLoad> wanted);
  bool is_over(StoreLoad& load);
  // Given up; what it holds is freed elsewhere, when the device has done with it.
  void retire(std::shared_ptr<StoreLoad> load, Ticket ticket);

  StoreTierStats stats() const;

 private:
  StoreTier(const StoreTierOptions& options, const KvLayout& layout, int64_t snapshot_bytes, bool exact);
  void write_loop();
  void write(StagingRing& ring, RecordKind kind);
  void read_loop();
  void read_pages(StoreLoad& load, size_t first, size_t count);
  void read_snapshot(StoreLoad& load);
  static void note(StoreLoad& load, size_t item, StoreRead got);
  void finish(StoreLoad& load, size_t finished);
  RecordView wanted(StoreLoad& load, size_t item) const;
  void measure(const StoreLoad& load);

  const StoreTierOptions options_;
  const size_t page_tokens_, page_bytes_, snapshot_bytes_;
  const bool exact_;
  SteadyClock clock_;  // the store's, too
  std::unique_ptr<SegmentStore> store_;
  StagingRing pages_, snapshots_;
  sem_t wake_writer_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> loads_{0}, loaded_pages_{0}, loaded_snapshots_{0}, late_{0}, lost_{0}, dropped_{0};
  std::atomic<double> bytes_per_us_{0};
  std::atomic<int64_t> slow_until_us_{0};
  int32_t open_loads_ = 0;  // the engine's thread

  std::vector<std::shared_ptr<StoreLoad>> retired_;  // whose memory the device may still read
  std::mutex mutex_;                                 // guards what follows up to the threads
  std::condition_variable wake_readers_;
  std::deque<std::shared_ptr<StoreLoad>> queue_;
  std::vector<std::shared_ptr<StoreLoad>> trash_;

  std::thread writer_;
  std::vector<std::thread> readers_;
};

inline bool StoreLoad::is_over() { return tier->is_over(*this); }

}  // namespace deepinfer
