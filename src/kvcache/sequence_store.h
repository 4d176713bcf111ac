// kvcache/sequence_store.h - the device memory of running sequences: state blocks, pages, page table.
//
// A running sequence holds a slot (one state block and one row of the page table) and the pages of its tokens, both
// through one SequenceLease. What a sequence computes never depends on which slot or pages it got, nor on who had them
// before: a slot's state is zeroed when it is taken, and pages are read only where the sequence has written.
// Promise: memory is allocated once, at creation. open() enqueues and does not wait, unless the same slot was opened
// before without a wait in between. export and import do wait: they move whole sequences and are rare.
// Threads: the thread that drives the device.
//
//   DI_TRY(auto store, SequenceStore::create(device, model.layout(), {.slots = 32, .pages = 4096, .context = 8192}));
//   DI_TRY(SequenceLease lease, store->open(prompt_tokens + max_tokens));
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/kv_layout.h"
#include "core/types.h"
#include "kvcache/page_pool.h"
#include "ops/device.h"

namespace deepinfer {

class SequenceStore;

// A slot and its pages; both are free again when the lease goes. REQUIRES: no step that uses them is still running.
class SequenceLease {
 public:
  SequenceLease() = default;
  SequenceLease(SequenceLease&& other) noexcept { *this = std::move(other); }
  SequenceLease& operator=(SequenceLease&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(slot_, other.slot_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~SequenceLease();

  explicit operator bool() const { return store_ != nullptr; }
  SlotId slot() const { return slot_; }
  std::span<const int32_t> pages() const { return pages_.pages(); }

 private:
  friend class SequenceStore;
  SequenceLease(SequenceStore* store, SlotId slot, PageLease pages) : store_(store), slot_(slot), pages_(std::move(pages)) {}

  SequenceStore* store_ = nullptr;
  SlotId slot_ = -1;
  PageLease pages_;
};

// All that a sequence of `tokens` computed tokens needs to go on in another slot, engine or process.
struct SequenceBytes {
  int64_t tokens = 0;
  std::vector<uint8_t> state;  // layout.state_bytes
  std::vector<uint8_t> pages;  // whole pages, in order of position
};

struct SequenceStoreOptions {
  int32_t slots = 0;
  int32_t pages = 0;
  int64_t context = 0;  // tokens of the longest sequence
  // Window rings a snapshot holds, from the first layer on; with them go compressor tails and Engram history.
  int32_t snapshot_rings = 0;
};

class SequenceStore {
 public:
  static Result<std::unique_ptr<SequenceStore>> create(Device& device, const KvLayout& layout,
                                                       const SequenceStoreOptions& options);
  ~SequenceStore();
  SequenceStore(const SequenceStore&) = delete;
  SequenceStore& operator=(const SequenceStore&) = delete;

  // A slot whose first tokens lie in `pages`. kExhausted when no slot is free. REQUIRES: pages within the context.
  Result<SequenceLease> open(PageLease pages);
  // The same with fresh pages for `tokens`; kExhausted when too few are free.
  Result<SequenceLease> open(int64_t tokens);
  // More pages behind those of `lease`. REQUIRES: within the context.
  void grow(SequenceLease& lease, PageLease more);
  // A step in flight may still read the old page: whoever gets it next writes it behind that step. REQUIRES: same content; the
  // last upload of this entry has been waited for.
  void replace_page(SequenceLease& lease, size_t index, int32_t page);

  // Enqueue copies of what a snapshot holds; host memory of snapshot_bytes(), untouched until the copy was waited for.
  int64_t snapshot_bytes() const;
  void take_snapshot(const SequenceLease& lease, uint8_t* out);
  void restore_snapshot(const SequenceLease& lease, const uint8_t* snapshot);

  // The same for the state block and the page that its `tokens` end in.
  int64_t whole_state_bytes() const { return layout_.state_bytes + layout_.page_bytes; }
  void take_whole_state(const SequenceLease& lease, int64_t tokens, uint8_t* out);
  void restore_whole_state(const SequenceLease& lease, int64_t tokens, const uint8_t* from);

  // Enqueue the copy of one page, to or from host memory that stays untouched until it was waited for.
  void download_page(int32_t page, uint8_t* out) {
    device_.download(out, page_at(page), static_cast<size_t>(layout_.page_bytes));
  }
  void upload_page(int32_t page, const uint8_t* from) {
    device_.upload(page_at(page), from, static_cast<size_t>(layout_.page_bytes));
  }
  Ticket record() { return device_.record(); }
  Status wait(Ticket ticket) { return device_.wait(ticket); }

  Result<SequenceBytes> export_sequence(const SequenceLease& lease, int64_t tokens);
  Status import_sequence(const SequenceLease& lease, const SequenceBytes& bytes);

  int64_t pages_for(int64_t tokens) const { return (tokens + layout_.page_tokens - 1) / layout_.page_tokens; }
  int32_t num_slots() const { return options_.slots; }
  int32_t num_free_slots() const { return static_cast<int32_t>(free_slots_.size()); }
  PagePool& pool() { return pool_; }
  const PagePool& pool() const { return pool_; }

  // Device memory, as model/language_model.h describes it.
  uint8_t* states() const { return states_.as<uint8_t>(); }
  uint8_t* pages() const { return pages_.as<uint8_t>(); }
  const int32_t* page_table() const { return table_.as<int32_t>(); }
  int64_t table_stride() const { return table_stride_; }

 private:
  friend class SequenceLease;
  SequenceStore(Device& device, const KvLayout& layout, const SequenceStoreOptions& options);
  uint8_t* state_of(SlotId slot) const { return states() + slot * layout_.state_bytes; }
  Status need_slot() const;
  void upload_table(SlotId slot, size_t begin, std::span<const int32_t> pages);
  uint8_t* page_at(int32_t page) const { return pages() + page * layout_.page_bytes; }

  Device& device_;
  const KvLayout layout_;
  const SequenceStoreOptions options_;
  int64_t table_stride_;
  PagePool pool_;
  std::vector<SlotId> free_slots_;  // last one is taken first
  Buffer states_, pages_, table_;
  // What the device reads when it gets to a slot's upload: a row stays as it is until that ticket has been waited for.
  std::vector<int32_t> host_table_;
  std::vector<Ticket> uploaded_;  // per slot
};

}  // namespace deepinfer
