#include "kvcache/tiers/store_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

namespace deepinfer {
namespace {

// Records of one put: several writes under way, and yet slots come free while the engine goes on.
constexpr size_t kWriteRecords = 128;
// Pages of one read: at release sizes 0.9 MB, with which one reader alone has most of a disk's rate.
constexpr size_t kReadPages = 16;
// Smaller loads measure how long a reader takes to wake up, not the disk.
constexpr int64_t kMeasuredBytes = 1 << 20;
constexpr double kNewestShare = 0.25;
constexpr int64_t kRetryUs = 30'000'000;

// False after `us` without a post.
bool wait_for(sem_t& semaphore, int64_t us) {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  const int64_t nanoseconds = until.tv_nsec + us % 1'000'000 * 1'000;
  until.tv_sec += us / 1'000'000 + nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  while (::sem_timedwait(&semaphore, &until) != 0) {
    if (errno != EINTR) return false;
  }
  while (::sem_trywait(&semaphore) == 0) {
  }
  return true;
}

}  // namespace

StoreTier::StoreTier(const StoreTierOptions& options, const KvLayout& layout, int64_t snapshot_bytes, bool exact)
    : options_(options),
      page_tokens_(static_cast<size_t>(layout.page_tokens)),
      page_bytes_(static_cast<size_t>(layout.page_bytes)),
      snapshot_bytes_(static_cast<size_t>(snapshot_bytes)),
      exact_(exact),
      pages_(static_cast<size_t>(options.staged_pages), page_tokens_, page_bytes_),
      snapshots_(static_cast<size_t>(options.staged_snapshots), page_tokens_, snapshot_bytes_) {
  ::sem_init(&wake_writer_, 0, 0);
}

Result<std::unique_ptr<StoreTier>> StoreTier::open(const StoreTierOptions& options, const KvLayout& layout,
                                                   int64_t snapshot_bytes, bool exact) {
  std::unique_ptr<StoreTier> tier(new StoreTier(options, layout, snapshot_bytes, exact));
  SegmentStoreOptions store;
  store.root = options.folder;
  // Snapshots of another replay mode have another size: such a store is another one.
  // So are those of another key.
  const std::string key = options.cipher ? fmt::format("|key {:016x}", options.cipher->mark()) : "";
  store.fingerprint = store_fingerprint(fmt::format("{}|snapshots of {} bytes{}", options.fingerprint, snapshot_bytes, key));
  store.cipher = options.cipher;
  store.page_tokens = static_cast<uint32_t>(layout.page_tokens);
  store.page_bytes = static_cast<uint32_t>(layout.page_bytes);
  store.sections = stored_sections(layout);
  store.limit_bytes = options.limit_bytes;
  store.retry_us = options.retry_us;
  store.pace = &tier->clock_;
  store.writer_seed = options.writer_seed;
  DI_TRY(tier->store_, SegmentStore::open(*options.disk, *options.date, store));
  tier->writer_ = std::thread([raw = tier.get()] { raw->write_loop(); });
  for (int32_t i = 0; i < options.readers; ++i) tier->readers_.emplace_back([raw = tier.get()] { raw->read_loop(); });
  return tier;
}

StoreTier::~StoreTier() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
    for (const auto& load : queue_) load->abandoned.store(true);
  }
  wake_readers_.notify_all();
  ::sem_post(&wake_writer_);
  for (std::thread& reader : readers_) reader.join();
  if (writer_.joinable()) writer_.join();
  ::sem_destroy(&wake_writer_);
}

StagingRing::Slot* StoreTier::stage(RecordKind kind) {
  StagingRing::Slot* slot = (kind == RecordKind::kPage ? pages_ : snapshots_).take();
  if (!slot) dropped_.fetch_add(1, std::memory_order_relaxed);
  return slot;
}

void StoreTier::settle(Ticket waited, bool good) {
  const bool pages = pages_.settle(waited, good), snapshots = snapshots_.settle(waited, good);
  // Once for what a step completed, and only a system call when the writer sleeps.
  if (pages || snapshots) ::sem_post(&wake_writer_);
  if (retired_.empty()) return;
  const auto done =
      std::stable_partition(retired_.begin(), retired_.end(), [&](const auto& load) { return load->ticket > waited; });
  {
    const std::lock_guard lock(mutex_);
    trash_.insert(trash_.end(), std::make_move_iterator(done), std::make_move_iterator(retired_.end()));
  }
  retired_.erase(done, retired_.end());
  wake_readers_.notify_one();
}

void StoreTier::write_loop() {
  int64_t looked_us = clock_.now_us();
  for (;;) {
    wait_for(wake_writer_, options_.refresh_us);
    const bool last = stop_.load();
    while (pages_.ready() > 0) write(pages_, RecordKind::kPage);
    while (snapshots_.ready() > 0) write(snapshots_, RecordKind::kSnapshot);
    if (last) return;
    if (clock_.now_us() - looked_us < options_.refresh_us) continue;
    static_cast<void>(store_->refresh());
    looked_us = clock_.now_us();
  }
}

// Records of one class, as many as are ready.
void StoreTier::write(StagingRing& ring, RecordKind kind) {
  std::array<RecordView, kWriteRecords> records;
  const size_t most = std::min(ring.ready(), kWriteRecords);
  const RetentionClass retention = ring.at(0).retention;
  size_t count = 0, used = 0;
  for (; used < most && ring.at(used).retention == retention; ++used) {
    const StagingRing::Slot& slot = ring.at(used);
    if (slot.good)
      records[count++] = {kind, exact_, slot.key, slot.parent, slot.tenant, slot.tokens, slot.payload, slot.starts, slot.image};
  }
  if (!store_->put(retention, std::span(records).first(count))) lost_.fetch_add(static_cast<int64_t>(count));
  ring.release(used);
}

int64_t StoreTier::load_bytes(size_t pages, bool snapshot) const {
  return static_cast<int64_t>(pages * page_bytes_ + (snapshot ? snapshot_bytes_ : 0));
}

std::shared_ptr<StoreLoad> StoreTier::load(std::shared_ptr<StoreLoad> load) {
  load->tier = this;
  load->states = std::make_unique<std::atomic<StoreLoad::Item>[]>(load->items());
  load->record_bytes = static_cast<size_t>(record_bytes(page_tokens_, page_bytes_));
  load->payload_at = record_payload_at(page_tokens_);
  if (load->pages > 0) load->records.emplace(static_cast<int64_t>(load->pages * load->record_bytes));
  if (load->border > 0) load->snapshot_buffer = std::make_unique_for_overwrite<uint8_t[]>(snapshot_bytes_);
  load->deadline_us = clock_.now_us() + options_.deadline.us(static_cast<int64_t>(load->tokens.size()));
  loads_.fetch_add(1, std::memory_order_relaxed);
  ++open_loads_;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(load);
  }
  wake_readers_.notify_all();
  return load;
}

bool StoreTier::is_over(StoreLoad& load) {
  const size_t items = load.items();
  const bool all = load.finished.load(std::memory_order_acquire) == items;
  if (!all && clock_.now_us() < load.deadline_us) return false;
  if (load.abandoned.exchange(true)) return true;
  const auto state = [&](size_t i) { return load.states[i].load(std::memory_order_acquire); };
  while (load.come < load.pages && state(load.come) == StoreLoad::Item::kThere) ++load.come;
  const bool has_state = load.border > 0 && state(items - 1) == StoreLoad::Item::kThere;
  if (has_state) load.snapshot = std::move(load.snapshot_buffer);
  if (!all) {
    // A disk that does not answer is left alone for a while: every prompt would wait its whole time for it.
    slow_until_us_.store(clock_.now_us() + kRetryUs);
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(queue_, [&](const auto& waiting) { return waiting.get() == &load; });
    }
    late_.fetch_add(1, std::memory_order_relaxed);
    load.reason = MissReason::kLate;
  } else if (load.come < load.pages && state(load.come) == StoreLoad::Item::kFault) {
    load.reason = MissReason::kTierDown;
  }
  loaded_pages_.fetch_add(static_cast<int64_t>(load.come), std::memory_order_relaxed);
  loaded_snapshots_.fetch_add(has_state, std::memory_order_relaxed);
  return true;
}

void StoreTier::retire(std::shared_ptr<StoreLoad> load, Ticket ticket) {
  load->abandoned.store(true);
  --open_loads_;
  load->ticket = ticket;
  retired_.push_back(std::move(load));
}

void StoreTier::read_loop() {
  std::vector<std::shared_ptr<StoreLoad>> freed;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_readers_.wait(lock, [&] { return stop_.load() || !queue_.empty() || !trash_.empty(); });
    if (stop_.load()) return;
    freed.swap(trash_);
    std::shared_ptr<StoreLoad> load = queue_.empty() ? nullptr : queue_.front();
    const size_t first = load ? load->next : 0;
    const size_t count = load ? std::clamp(load->pages - first, size_t{1}, kReadPages) : 0;
    if (load && (load->next += count) == load->items()) queue_.pop_front();
    lock.unlock();
    freed.clear();
    if (load && first < load->pages) read_pages(*load, first, count);
    if (load && first == load->pages) read_snapshot(*load);
    load.reset();
    lock.lock();
  }
}

RecordView StoreTier::wanted(StoreLoad& load, size_t item) const {
  if (item == load.pages) {
    return {RecordKind::kSnapshot, exact_, load.border_key, load.border_parent, load.tenant, load.border_tokens, {}};
  }
  const auto tokens = std::span(load.tokens).subspan(item * page_tokens_, page_tokens_);
  const auto image = load.records->bytes().subspan(item * load.record_bytes, load.record_bytes);
  return {RecordKind::kPage,
          exact_,
          load.keys[item + 1],
          load.keys[item],
          load.tenant,
          tokens,
          image.subspan(load.payload_at, page_bytes_),
          load.first + item == 0,
          image};
}

// Pages behind one that is missing are of no use.
void StoreTier::read_pages(StoreLoad& load, size_t first, size_t count) {
  if (first == 0) load.begun_us.store(clock_.now_us());
  std::array<StoreRead, kReadPages> got;
  got.fill(StoreRead::kMiss);
  std::array<RecordView, kReadPages> records;
  for (size_t i = 0; i < count; ++i) records[i] = wanted(load, first + i);
  if (first <= load.cut.load(std::memory_order_relaxed) && !load.abandoned.load(std::memory_order_relaxed))
    store_->read(std::span(records).first(count), std::span(got).first(count));
  for (size_t i = 0; i < count; ++i) note(load, first + i, got[i]);
  finish(load, count);
  // Written again for another life, when nobody waits for them any more.
  for (size_t i = 0; i < count; ++i) {
    if (got[i] != StoreRead::kHitAgeing) continue;
    records[i].image = {};  // the device may be reading there
    if (!store_->put(load.retention, {&records[i], 1})) lost_.fetch_add(1);
  }
}

// May be of use without the last pages.
void StoreTier::read_snapshot(StoreLoad& load) {
  if (load.pages == 0) load.begun_us.store(clock_.now_us());
  StoreRead got = StoreRead::kMiss;
  if (!load.abandoned.load(std::memory_order_relaxed))
    got = store_->read(wanted(load, load.pages), {load.snapshot_buffer.get(), snapshot_bytes_});
  note(load, load.pages, got);
  finish(load, 1);
}

void StoreTier::note(StoreLoad& load, size_t item, StoreRead got) {
  const bool there = got == StoreRead::kHit || got == StoreRead::kHitAgeing;
  if (!there && item < load.pages) {
    size_t cut = load.cut.load();
    while (item < cut && !load.cut.compare_exchange_weak(cut, item)) {
    }
  }
  const auto state = there                      ? StoreLoad::Item::kThere
                     : got == StoreRead::kFault ? StoreLoad::Item::kFault
                                                : StoreLoad::Item::kMissing;
  load.states[item].store(state, std::memory_order_release);
}

void StoreTier::finish(StoreLoad& load, size_t finished) {
  if (load.finished.fetch_add(finished, std::memory_order_acq_rel) + finished == load.items()) measure(load);
}

double StoreTier::read_bytes_per_us() const {
  constexpr double kNone = 1e-6;
  return rests() ? kNone : bytes_per_us_.load(std::memory_order_relaxed);
}

void StoreTier::measure(const StoreLoad& load) {
  if (load.cut.load() < load.pages || load.abandoned.load()) return;
  const int64_t bytes = load_bytes(load.pages, load.border > 0),
                us = std::max<int64_t>(1, clock_.now_us() - load.begun_us.load());
  const double rate = static_cast<double>(bytes) / static_cast<double>(us), known = bytes_per_us_.load();
  if (bytes < kMeasuredBytes && rate < known) return;
  bytes_per_us_.store(known == 0 ? rate : known + kNewestShare * (rate - known));
}

StoreTierStats StoreTier::stats() const {
  StoreTierStats out{.on = true, .loads = loads_.load(), .loaded_pages = loaded_pages_.load()};
  out.loaded_snapshots = loaded_snapshots_.load();
  out.late = late_.load(), out.lost = lost_.load(), out.dropped = dropped_.load();
  out.read_bytes_per_us = read_bytes_per_us();
  out.segments = store_->stats();
  return out;
}

}  // namespace deepinfer
