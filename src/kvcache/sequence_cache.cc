#include "kvcache/sequence_cache.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int32_t kLeastSnapshots = 4;

}  // namespace

SequenceCache::SequenceCache(const SequenceCacheOptions& options) : options_(options), page_tokens_(options.replay.page_tokens) {}

Result<std::unique_ptr<SequenceCache>> SequenceCache::create(Device& device, const KvLayout& layout,
                                                             const SequenceCacheOptions& options) {
  SequenceCacheOptions resolved = options;
  resolved.store.snapshot_rings = snapshot_layers(options.replay);
  std::unique_ptr<SequenceCache> cache(new SequenceCache(resolved));
  DI_TRY(cache->store_, SequenceStore::create(device, layout, resolved.store));
  const int64_t bytes = cache->store_->snapshot_bytes();
  const int64_t most = std::max<int64_t>(kLeastSnapshots, int64_t{resolved.store.pages} + resolved.store.slots);
  const auto capacity = std::clamp<int64_t>(options.snapshot_bytes / bytes, kLeastSnapshots, most);
  cache->shelf_ = std::make_unique<SnapshotShelf>(bytes, static_cast<int32_t>(capacity), resolved.store.pages);
  cache->index_ = std::make_unique<PrefixIndex>(cache->store_->pool(), *cache->shelf_, layout.page_tokens);
  if (options.tier.disk && options.share_prefixes) {
    const bool exact = options.replay.mode != ReplayMode::kFull;
    DI_TRY(cache->tier_, StoreTier::open(options.tier, layout, bytes, exact));
    cache->staged_.resize(static_cast<size_t>(resolved.store.pages));
  }
  return cache;
}

Result<Opening> SequenceCache::open(const SequenceContent& content, int64_t reserve, CachedSequence& out) {
  if (store_->num_free_slots() == 0) return Opening::kNoRoom;
  found_.pages.clear();
  if (options_.share_prefixes) {
    out.root = root_key(options_.fingerprint, options_.replay.mode == ReplayMode::kFull, content.tenant);
    out.publishes = true;
    // At least the last token is computed, so the page that ends with it is no hit.
    extend_page_keys(out.root, content.tokens.first(content.tokens.size() - 1), content.images, page_tokens_, out.keys);
    index_->match(out.root, out.keys, content.tokens, found_);
    out.verdict = found_.verdict;
    const size_t next = found_.pages.size();
    if (!out.load && next < out.keys.size() && index_->announced(out.keys[next])) return Opening::kAwaitsPrefix;
    if (awaits_load(content, out)) return Opening::kLoading;
  }
  // Held before room is made, so that they are not what makes room.
  PageLease pages = store_->pool().share(found_.pages);
  const int64_t fresh =
      store_->pages_for(static_cast<int64_t>(content.tokens.size())) - static_cast<int64_t>(found_.pages.size());
  if (!index_->make_room(fresh + reserve)) return Opening::kNoRoom;
  if (out.load) take_loaded(content, out, pages);
  if (tier_) ask_store_why(content, out);
  DI_TRY(PageLease more, store_->pool().lease(store_->pages_for(static_cast<int64_t>(content.tokens.size())) -
                                              static_cast<int64_t>(found_.pages.size())));
  pages.append(std::move(more));
  DI_TRY(out.lease, store_->open(std::move(pages)));

  out.sink = content.sink;
  out.opened_tokens = static_cast<Position>(content.tokens.size());
  out.published = found_.pages.size();
  if (out.publishes) out.prompt = index_->begin(found_.pages, out.keys.size());
  for (out.announced = out.published; out.announced < out.keys.size(); ++out.announced) index_->announce(out.keys[out.announced]);
  if (!restore_whole(content, out)) {
    resume(content, out);
    restore(out);
  }
  if (out.load) retire_load(out, store_->record());
  plan_snapshots(content, out);
  if (tier_) stage_lost(out);
  send_pages(out);
  ++stats_.lookups;
  stats_.hits += out.verdict.cached_tokens > 0;
  stats_.hit_tokens += out.verdict.cached_tokens;
  stats_.replayed_tokens += out.verdict.replayed_tokens;
  stats_.lookup_tokens += static_cast<int64_t>(content.tokens.size());
  return Opening::kOpened;
}

// The newest snapshot that serves, else a replay.
void SequenceCache::resume(const SequenceContent& content, CachedSequence& out) const {
  const Position hit = static_cast<Position>(out.published) * page_tokens_;
  out.write_floor = out.verdict.cached_tokens = hit;
  const auto has_snapshot = [&](Position border) { return shelf_->of_page(page_before(out, border)) != SnapshotShelf::kNone; };
  const ReplayStart start = resume_start(options_.replay, content.original_prompt_tokens, hit, has_snapshot);
  out.begin = start.begin, out.window_floor = start.window_floor, out.exact_from = start.exact_from;
  out.verdict.replayed_tokens = hit - out.begin;
}

void SequenceCache::restore(CachedSequence& out) {
  if (out.begin == 0 || out.window_floor > 0) return;
  const int32_t id = shelf_->of_page(page_before(out, out.begin));
  shelf_->touch(id);
  store_->restore_snapshot(out.lease, shelf_->data(id));
}

// Where the next turn of this conversation will resume, and where this prompt left a cached prefix (the third request of a
// branch then resumes for nothing). In between where that is wanted, for prompts that are often left in the middle.
void SequenceCache::plan_snapshots(const SequenceContent& content, CachedSequence& out) const {
  out.cuts.clear();
  if (!options_.share_prefixes) return;
  const Position end = static_cast<Position>(content.tokens.size());
  const auto cut_at = [&](Position border) {
    if (border > out.begin && border >= out.exact_from && border < end) out.cuts.push_back(border);
  };
  cut_at(snapshot_border(options_.replay, content.original_prompt_tokens));
  cut_at(out.write_floor);
  const Position every = (options_.snapshot_every + page_tokens_ - 1) / page_tokens_ * page_tokens_;
  for (Position border = every; every > 0 && border < end; border += every) cut_at(border);
  std::sort(out.cuts.begin(), out.cuts.end());
  out.cuts.erase(std::unique(out.cuts.begin(), out.cuts.end()), out.cuts.end());
}

int32_t SequenceCache::page_before(const CachedSequence& sequence, Position border) const {
  return sequence.lease.pages()[static_cast<size_t>(border / page_tokens_ - 1)];
}

bool SequenceCache::grow(CachedSequence& sequence, int64_t tokens) {
  const int64_t more = store_->pages_for(tokens) - static_cast<int64_t>(sequence.lease.pages().size());
  if (more <= 0) return true;
  if (!index_->make_room(more)) return false;
  auto pages = store_->pool().lease(more);
  DI_CHECK(pages.ok());
  store_->grow(sequence.lease, *std::move(pages));
  return true;
}

void SequenceCache::step_enqueued(CachedSequence& sequence, Position begin, Position end) {
  const bool due = end == sequence.cut();
  if (due) sequence.cuts.erase(sequence.cuts.begin());
  // While an answer grows nobody knows its end, so every border is kept until later ones serve better. Rows behind the border
  // do no harm to its snapshot: the rings have kRingSlack slots for them, and a border is even, so no pair is open at it.
  const Position border = due ? end : end / page_tokens_ * page_tokens_;
  const bool growing = border > begin && border >= sequence.opened_tokens && border >= sequence.exact_from;
  if (!sequence.publishes || !(due || growing)) return;
  sequence.filling = shelf_->take();
  if (sequence.filling == SnapshotShelf::kNone) return;
  sequence.filling_at = border;
  store_->take_snapshot(sequence.lease, shelf_->data(sequence.filling));
}

void SequenceCache::step_done(CachedSequence& sequence, std::span<const TokenId> tokens, std::span<const ImageSpan> images,
                              Position computed) {
  if (sequence.publishes) {
    extend_page_keys(sequence.root, tokens.first(static_cast<size_t>(computed)), images, page_tokens_, sequence.keys);
    publish(sequence, tokens, computed);
  }
  if (sequence.filling != SnapshotShelf::kNone) shelve(sequence);
  sequence.computed = computed;
}

void SequenceCache::publish(CachedSequence& sequence, std::span<const TokenId> tokens, Position computed) {
  const size_t complete = std::min(static_cast<size_t>(computed / page_tokens_), sequence.keys.size());
  while (sequence.published < complete) {
    const size_t i = sequence.published;
    const auto pages = sequence.lease.pages();
    const int32_t used =
        index_->publish(sequence.root, sequence.keys, i, tokens, i == 0 ? -1 : pages[i - 1], pages[i], sequence.prompt);
    if (used < 0) {
      sequence.publishes = false;
      return;
    }
    const bool is_new = used == pages[i];
    if (!is_new) store_->replace_page(sequence.lease, i, used);
    if (tier_ && is_new) stage_page(sequence, i);
    if (i < sequence.announced) index_->withdraw(sequence.keys[i]);
    ++sequence.published;
    ++stats_.published_pages;
  }
  sequence.announced = std::max(sequence.announced, sequence.published);
  send_pages(sequence);
}

void SequenceCache::shelve(CachedSequence& sequence) {
  const int32_t id = std::exchange(sequence.filling, SnapshotShelf::kNone);
  const Position border = sequence.filling_at;
  if (static_cast<size_t>(border / page_tokens_) > sequence.published) return shelf_->release(id);
  const int32_t page = page_before(sequence, border);
  if (shelf_->of_page(page) != SnapshotShelf::kNone) return shelf_->release(id);
  shelf_->attach(id, page);
  if (border < sequence.opened_tokens) {
    if (tier_) stage_snapshot(sequence, border);
    return;
  }
  // Of the borders up to the one that would serve if the answer ended here, only the last is worth keeping.
  auto& own = sequence.own_snapshots;
  own.push_back(border);
  const Position serves = snapshot_border(options_.replay, border);
  while (own.size() > 1 && own[1] <= serves) {
    shelf_->forget(page_before(sequence, own.front()));
    own.erase(own.begin());
  }
}

void SequenceCache::close(CachedSequence& sequence) {
  for (size_t i = sequence.published; i < sequence.announced; ++i) index_->withdraw(sequence.keys[i]);
  if (sequence.filling != SnapshotShelf::kNone) shelf_->release(sequence.filling);
  end_load(sequence);
  if (tier_) stage_turn_end(sequence);
  sequence = {};
}

PrefixStats SequenceCache::stats() const {
  PrefixStats stats = stats_;
  stats.evicted_pages = index_->num_evicted();
  stats.cached_pages = store_->pool().num_cached();
  stats.snapshots = shelf_->num_attached();
  return stats;
}

}  // namespace deepinfer
