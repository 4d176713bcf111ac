#include "kvcache/sequence_store.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

SequenceLease::~SequenceLease() {
  if (store_) store_->free_slots_.push_back(slot_);
}

SequenceStore::SequenceStore(Device& device, const KvLayout& layout, const SequenceStoreOptions& options)
    : device_(device), layout_(layout), options_(options), table_stride_(pages_for(options.context)), pool_(options.pages) {
  for (SlotId slot = options.slots; slot-- > 0;) free_slots_.push_back(slot);
  host_table_.resize(static_cast<size_t>(options.slots * table_stride_));
  uploaded_.resize(static_cast<size_t>(options.slots));
}

// The host side of the page table must outlive the uploads that read it.
SequenceStore::~SequenceStore() {
  for (const Ticket uploaded : uploaded_) {
    if (uploaded != 0) static_cast<void>(device_.wait(uploaded));
  }
}

Result<std::unique_ptr<SequenceStore>> SequenceStore::create(Device& device, const KvLayout& layout,
                                                             const SequenceStoreOptions& options) {
  if (options.slots < 1 || options.pages < 1 || options.context < 1) {
    return invalid_argument(
        fmt::format("the KV cache needs at least one slot, one page and one token of context, got {}, {} and {}", options.slots,
                    options.pages, options.context));
  }
  std::unique_ptr<SequenceStore> store(new SequenceStore(device, layout, options));
  DI_TRY(store->states_, device.allocate(static_cast<size_t>(options.slots * layout.state_bytes)));
  DI_TRY(store->pages_, device.allocate(static_cast<size_t>(options.pages * layout.page_bytes)));
  DI_TRY(store->table_, device.allocate(store->host_table_.size() * sizeof(int32_t)));
  return store;
}

Status SequenceStore::need_slot() const {
  if (!free_slots_.empty()) return {};
  return exhausted(fmt::format("all {} sequence slots are taken: wait for running requests", options_.slots));
}

Result<SequenceLease> SequenceStore::open(int64_t tokens) {
  DI_CHECK_OK(need_slot());
  DI_TRY(PageLease pages, pool_.lease(pages_for(tokens)));
  return open(std::move(pages));
}

Result<SequenceLease> SequenceStore::open(PageLease pages) {
  DI_CHECK_OK(need_slot());
  const SlotId slot = free_slots_.back();
  Ticket& uploaded = uploaded_[static_cast<size_t>(slot)];
  if (uploaded != 0) DI_CHECK_OK(device_.wait(std::exchange(uploaded, 0)));
  upload_table(slot, 0, pages.pages());
  device_.fill_zero(state_of(slot), static_cast<size_t>(layout_.state_bytes));
  uploaded = device_.record();
  free_slots_.pop_back();
  return SequenceLease(this, slot, std::move(pages));
}

void SequenceStore::upload_table(SlotId slot, size_t begin, std::span<const int32_t> pages) {
  DI_CHECK(static_cast<int64_t>(begin + pages.size()) <= table_stride_);
  const int64_t at = slot * table_stride_ + static_cast<int64_t>(begin);
  std::copy(pages.begin(), pages.end(), host_table_.begin() + at);
  device_.upload(table_.as<int32_t>() + at, host_table_.data() + at, pages.size_bytes());
}

void SequenceStore::grow(SequenceLease& lease, PageLease more) {
  const size_t before = lease.pages().size();
  lease.pages_.append(std::move(more));
  upload_table(lease.slot(), before, lease.pages().subspan(before));
  uploaded_[static_cast<size_t>(lease.slot())] = device_.record();
}

void SequenceStore::replace_page(SequenceLease& lease, size_t index, int32_t page) {
  lease.pages_.replace(index, page);
  upload_table(lease.slot(), index, lease.pages().subspan(index, 1));
  uploaded_[static_cast<size_t>(lease.slot())] = device_.record();
}

int64_t SequenceStore::snapshot_bytes() const {
  return options_.snapshot_rings * layout_.ring_bytes + layout_.state_bytes - layout_.tails_offset;
}

void SequenceStore::take_snapshot(const SequenceLease& lease, uint8_t* out) {
  const auto rings = static_cast<size_t>(options_.snapshot_rings * layout_.ring_bytes);
  const uint8_t* state = state_of(lease.slot());
  device_.download(out, state, rings);
  device_.download(out + rings, state + layout_.tails_offset, static_cast<size_t>(layout_.state_bytes - layout_.tails_offset));
}

void SequenceStore::restore_snapshot(const SequenceLease& lease, const uint8_t* snapshot) {
  const auto rings = static_cast<size_t>(options_.snapshot_rings * layout_.ring_bytes);
  uint8_t* state = state_of(lease.slot());
  device_.upload(state, snapshot, rings);
  device_.upload(state + layout_.tails_offset, snapshot + rings, static_cast<size_t>(layout_.state_bytes - layout_.tails_offset));
}

void SequenceStore::take_whole_state(const SequenceLease& lease, int64_t tokens, uint8_t* out) {
  device_.download(out, state_of(lease.slot()), static_cast<size_t>(layout_.state_bytes));
  if (tokens % layout_.page_tokens == 0) return;
  download_page(lease.pages()[static_cast<size_t>(tokens / layout_.page_tokens)], out + layout_.state_bytes);
}

void SequenceStore::restore_whole_state(const SequenceLease& lease, int64_t tokens, const uint8_t* from) {
  device_.upload(state_of(lease.slot()), from, static_cast<size_t>(layout_.state_bytes));
  if (tokens % layout_.page_tokens == 0) return;
  upload_page(lease.pages()[static_cast<size_t>(tokens / layout_.page_tokens)], from + layout_.state_bytes);
}

Result<SequenceBytes> SequenceStore::export_sequence(const SequenceLease& lease, int64_t tokens) {
  const size_t page_bytes = static_cast<size_t>(layout_.page_bytes);
  const size_t num_pages = static_cast<size_t>(pages_for(tokens));
  DI_CHECK(num_pages <= lease.pages().size());
  SequenceBytes bytes;
  bytes.tokens = tokens;
  bytes.state.resize(static_cast<size_t>(layout_.state_bytes));
  bytes.pages.resize(num_pages * page_bytes);
  device_.download(bytes.state.data(), state_of(lease.slot()), bytes.state.size());
  for (size_t i = 0; i < num_pages; ++i) {
    device_.download(bytes.pages.data() + i * page_bytes, page_at(lease.pages()[i]), page_bytes);
  }
  DI_CHECK_OK(device_.wait(device_.record()));
  return bytes;
}

Status SequenceStore::import_sequence(const SequenceLease& lease, const SequenceBytes& bytes) {
  const size_t page_bytes = static_cast<size_t>(layout_.page_bytes);
  const size_t num_pages = static_cast<size_t>(pages_for(bytes.tokens));
  if (bytes.state.size() != static_cast<size_t>(layout_.state_bytes) || bytes.pages.size() != num_pages * page_bytes) {
    return corrupt(fmt::format("sequence of {} tokens: state {} bytes and pages {} bytes, this model needs {} and {}",
                               bytes.tokens, bytes.state.size(), bytes.pages.size(), layout_.state_bytes,
                               num_pages * page_bytes));
  }
  if (num_pages > lease.pages().size()) {
    return too_large(
        fmt::format("sequence of {} tokens needs {} pages, its lease has {}", bytes.tokens, num_pages, lease.pages().size()));
  }
  device_.upload(state_of(lease.slot()), bytes.state.data(), bytes.state.size());
  for (size_t i = 0; i < num_pages; ++i) {
    device_.upload(page_at(lease.pages()[i]), bytes.pages.data() + i * page_bytes, page_bytes);
  }
  return device_.wait(device_.record());
}

}  // namespace deepinfer
