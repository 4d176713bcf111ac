// What the sequence cache does with the store on a disk: staging what it publishes, bringing back what a prompt begins with.
#include <algorithm>
#include <utility>

#include "kvcache/sequence_cache.h"
#include "kvcache/tiers/store_tools.h"

namespace deepinfer {

namespace {
constexpr int32_t kMostLoads = 8;
}  // namespace

bool SequenceCache::loading() const { return handed_loads_ > 0 || (tier_ && tier_->open_loads() > 0); }

void SequenceCache::poll_load(CachedSequence& sequence) {
  if (sequence.load && sequence.load->is_over()) withdraw_load(sequence);
}

// True while its pages are on their way or the store is read for this prompt. Asked once; while it is read, others with the same
// beginning wait for it as they wait for one who computes it.
bool SequenceCache::awaits_load(const SequenceContent& content, CachedSequence& out) {
  if (!out.load && content.handed) await_handed(content, out);
  if (out.load) {
    if (!out.load->is_over()) return true;
    withdraw_load(out);
    return false;
  }
  if (!tier_ || out.asked_store) return false;
  out.retention = content.retention;
  out.tenant_tag = tenant_tag(content.tenant);
  auto wanted = worth_loading(content, out);
  // Each holds its pages in memory until it gets a slot.
  if (wanted && tier_->open_loads() >= kMostLoads) return true;
  out.asked_store = true;
  if (!wanted) return false;
  out.load = tier_->load(std::move(wanted));
  out.load_from = out.load->first;
  out.load_announced = out.load->pages > 0;
  if (out.load_announced) index_->announce(out.keys[out.load_from]);
  return true;
}

// Null when computing is faster than reading.
std::shared_ptr<StoreLoad> SequenceCache::worth_loading(const SequenceContent& content, const CachedSequence& out) const {
  const auto& keys = out.keys;
  const size_t here = found_.pages.size(), there = here + tier_->match(std::span(keys).subspan(here));
  const auto page_at = [&](Position border) { return static_cast<size_t>(border / page_tokens_) - 1; };
  const auto on_shelf = [&](Position border) {
    return page_at(border) < here && shelf_->of_page(found_.pages[page_at(border)]) != SnapshotShelf::kNone;
  };
  const auto anywhere = [&](Position border) { return on_shelf(border) || tier_->has_snapshot(keys[page_at(border)]); };
  const auto start = [&](size_t pages, auto has) {
    return resume_start(options_.replay, content.original_prompt_tokens, static_cast<Position>(pages) * page_tokens_, has);
  };
  const ReplayStart with = start(there, anywhere), without = start(here, on_shelf);
  // A start that is a replay's has a floor, or is the beginning.
  const bool snapshot = with.begin > 0 && with.window_floor == 0 && !on_shelf(with.begin);
  const int64_t bytes = tier_->load_bytes(there - here, snapshot);
  if (!load_pays({bytes, tier_->read_bytes_per_us(), with.begin - without.begin, content.us_per_token})) return nullptr;

  const auto key_before = [&](size_t page) { return page == 0 ? out.root : keys[page - 1]; };
  const auto tokens_of = [&](size_t first, size_t count) {
    const auto size = static_cast<size_t>(page_tokens_);
    const auto part = content.tokens.subspan(first * size, count * size);
    return std::vector<TokenId>(part.begin(), part.end());
  };
  auto load = std::make_shared<StoreLoad>();
  load->retention = out.retention;
  load->tenant = out.tenant_tag;
  load->first = here, load->pages = there - here;
  load->keys = {key_before(here)};
  load->keys.insert(load->keys.end(), keys.begin() + static_cast<std::ptrdiff_t>(here),
                    keys.begin() + static_cast<std::ptrdiff_t>(there));
  load->tokens = tokens_of(here, there - here);
  if (!snapshot) return load;
  const size_t page = page_at(with.begin);
  load->border = with.begin;
  load->border_key = keys[page], load->border_parent = key_before(page);
  load->border_tokens = tokens_of(page, 1);
  return load;
}

// Turns what has come into published pages, which `pages` then holds behind those that were found. REQUIRES: room for them.
void SequenceCache::take_loaded(const SequenceContent& content, CachedSequence& out, PageLease& pages) {
  const PageLoad& load = *out.load;
  const size_t found = found_.pages.size(), end = std::min(load.first + load.ready(out.keys), out.keys.size());
  // Pages before them may have been evicted meanwhile, or others have published some of them.
  for (size_t i = found; i >= load.first && i < end; ++i) {
    auto fresh = store_->pool().lease(1);
    DI_CHECK(fresh.ok());
    const int32_t page = fresh->pages()[0];
    const int32_t used = index_->publish(out.root, out.keys, i, content.tokens, i == 0 ? -1 : found_.pages[i - 1], page);
    if (used != page) break;
    store_->upload_page(page, load.page(i - load.first));
    if (tier_) staged_[static_cast<size_t>(page)] = out.load_is_handed ? 0 : tier_->losses() + 1;
    pages.append(*std::move(fresh));
    found_.pages.push_back(page);
  }
  const auto loaded = static_cast<Position>(found_.pages.size() - found) * page_tokens_;
  take_loaded_snapshot(*out.load);
  // What follows now is another question than what was missing before.
  index_->match(out.root, out.keys, content.tokens, found_);
  out.verdict = found_.verdict;
  out.verdict.loaded_tokens = loaded;
  if (load.reason != MissReason::kNone && found_.pages.size() < load.first + load.pages) out.verdict.reason = load.reason;
  unproven_ticket_ = store_->record();
  unproven_.insert(unproven_.end(), found_.pages.begin() + static_cast<std::ptrdiff_t>(found), found_.pages.end());
}

void SequenceCache::take_loaded_snapshot(PageLoad& load) {
  const size_t page = static_cast<size_t>(load.border / page_tokens_);
  if (!load.snapshot || page == 0 || page > found_.pages.size()) return;
  const int32_t of = found_.pages[page - 1];
  if (shelf_->of_page(of) != SnapshotShelf::kNone) return;
  const int32_t id = shelf_->take();
  if (id == SnapshotShelf::kNone) return;
  // The buffer that was there may still be read by the device; it goes when the load does.
  load.snapshot = shelf_->exchange(id, std::move(load.snapshot));
  shelf_->attach(id, of);
}

void SequenceCache::withdraw_load(CachedSequence& sequence) {
  if (std::exchange(sequence.load_announced, false)) index_->withdraw(sequence.keys[sequence.load_from]);
}

void SequenceCache::end_load(CachedSequence& sequence) {
  if (!sequence.load) return;
  withdraw_load(sequence);
  retire_load(sequence, store_->record());
}

void SequenceCache::retire_load(CachedSequence& sequence, Ticket ticket) {
  if (sequence.load_is_handed) {
    --handed_loads_;
    taken_.emplace_back(std::move(sequence.load), ticket);
  } else {
    tier_->retire(std::static_pointer_cast<StoreLoad>(std::move(sequence.load)), ticket);
  }
  sequence.load_is_handed = false;
}

// What the store knows of the page behind those that are here. What was found out before, as that another one is there, stands.
void SequenceCache::ask_store_why(const SequenceContent& content, CachedSequence& out) const {
  const size_t next = found_.pages.size();
  MissReason& reason = out.verdict.reason;
  if (reason != MissReason::kNew || next >= out.keys.size()) return;
  reason = tier_->why_missing(out.keys[next]);
  if (reason == MissReason::kNone) reason = tier_->rests() ? MissReason::kLate : MissReason::kShort;
  const auto first_page = content.tokens.first(static_cast<size_t>(page_tokens_));
  if (reason == MissReason::kNew && next == 0 && tier_->known_elsewhere(out.tenant_tag, first_page))
    reason = MissReason::kOtherModel;
}

// Pages that went from the store while they stayed here, as after `cache drop`, are stored again when they are used, with their
// snapshots.
void SequenceCache::stage_lost(const CachedSequence& sequence) {
  const uint32_t now = tier_->losses() + 1;
  const auto pages = sequence.lease.pages().first(sequence.published);
  const auto is_old = [&](int32_t page) { return staged_[static_cast<size_t>(page)] != now; };
  if (std::none_of(pages.begin(), pages.end(), is_old)) return;
  const size_t there = tier_->match(std::span(sequence.keys).first(pages.size()));
  for (size_t i = 0; i < pages.size(); ++i) {
    if (i < there) staged_[static_cast<size_t>(pages[i])] = now;
    if (!is_old(pages[i])) continue;
    stage_page(sequence, i);
    stage_snapshot(sequence, static_cast<Position>(i + 1) * page_tokens_);
  }
}

// The copy is enqueued behind what wrote the page and before whatever writes to it next, so the page need not be held.
void SequenceCache::stage_page(const CachedSequence& sequence, size_t index) {
  StagingRing::Slot* slot = tier_->stage(RecordKind::kPage);
  const int32_t page = sequence.lease.pages()[index];
  staged_[static_cast<size_t>(page)] = slot ? tier_->losses() + 1 : 0;
  if (!slot) return;
  const auto tokens = index_->tokens_of(page);
  slot->retention = sequence.retention;
  slot->starts = index == 0;
  slot->key = sequence.keys[index];
  slot->parent = index == 0 ? sequence.root : sequence.keys[index - 1];
  slot->tenant = sequence.tenant_tag;
  std::copy(tokens.begin(), tokens.end(), slot->tokens.begin());
  store_->download_page(page, slot->payload.data());
  slot->ticket = store_->record();
}

// Of a border whose snapshot stands on the shelf, in memory of the host.
void SequenceCache::stage_snapshot(const CachedSequence& sequence, Position border) {
  const size_t index = static_cast<size_t>(border / page_tokens_) - 1;
  const int32_t page = sequence.lease.pages()[index], id = shelf_->of_page(page);
  if (id == SnapshotShelf::kNone) return;
  StagingRing::Slot* slot = tier_->stage(RecordKind::kSnapshot);
  if (!slot) return;
  const auto tokens = index_->tokens_of(page);
  slot->retention = RetentionClass::kSession;
  slot->key = sequence.keys[index];
  slot->parent = index == 0 ? sequence.root : sequence.keys[index - 1];
  slot->tenant = sequence.tenant_tag;
  std::copy(tokens.begin(), tokens.end(), slot->tokens.begin());
  std::copy_n(shelf_->data(id), slot->payload.size(), slot->payload.data());
  slot->ticket = 0;
}

// Where the next turn resumes, if it begins with all of this one.
void SequenceCache::stage_turn_end(const CachedSequence& sequence) {
  const auto& own = sequence.own_snapshots;
  const Position serves = snapshot_border(options_.replay, sequence.computed);
  const auto last = std::find_if(own.rbegin(), own.rend(), [&](Position border) { return border <= serves; });
  if (last != own.rend()) stage_snapshot(sequence, *last);
}

void SequenceCache::settle(Ticket waited, bool good) {
  settle_sent(waited, good);
  if (tier_) tier_->settle(waited, good);
  if (!good) {
    for (const int32_t page : unproven_) index_->forget(page);
  }
  if (!good || waited >= unproven_ticket_) unproven_.clear();
}

void SequenceCache::settle_all() {
  if (sending_.empty() && taken_.empty() && !(tier_ && tier_->busy())) return;
  const Ticket all = store_->record();
  settle(all, store_->wait(all).ok());
}

}  // namespace deepinfer
