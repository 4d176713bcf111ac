// kvcache/sequence_cache.h - a sequence's memory with everything the prefix cache does for it.
//
// open() finds the longest cached prefix, shares its pages, restores the newest usable snapshot (or starts a replay) and
// leases the rest; grow() adds pages while the answer grows; step_enqueued() and step_done() take snapshots and publish
// pages as they are completed; close() leaves everything published behind for the next request. What a sequence computes
// does not depend on any of this in the replay modes off and decoder (policy/replay.h).
// Promise: pages free + leased + cached = all; a published page is never written again; nothing blocks.
// Threads: the thread that drives the device.
//
//   CachedSequence sequence;
//   DI_TRY(const Opening opening, cache->open({...}, sequence));   // then rows from sequence.begin on
//   ... enqueue a step that computes positions [b, p)
//   cache->step_enqueued(sequence, b, p);
//   ... wait
//   cache->step_done(sequence, tokens, images, q);                // q < p when drafts were rejected
//   cache->settle(ticket, ok);                                    // after each wait, once its steps are done
//   cache->close(sequence);
//
// Pages may come from another engine and go to one (kvcache/page_transfer.h).
// With a store on a disk (kvcache/tiers/store_tier.h) published pages and the snapshots of prompts and turn ends are
// copied out to it, and what it has of a prompt is brought back first: open() then says kLoading until it has come or is late.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcache/page_transfer.h"
#include "kvcache/prefix_index.h"
#include "kvcache/sequence_store.h"
#include "kvcache/tiers/store_tier.h"
#include "policy/replay.h"

namespace deepinfer {

struct SequenceCacheOptions {
  SequenceStoreOptions store;  // snapshot_rings is set from `replay`
  ReplayRules replay;
  std::string fingerprint;  // of everything that page contents depend on besides tokens and images
  bool share_prefixes = true;
  int64_t snapshot_bytes = 0;  // host memory for snapshots; at least a few are kept
  int64_t snapshot_every = 0;  // so many tokens of a prompt, in whole pages, a snapshot beside those its turns need; 0 = none
  StoreTierOptions tier;       // without a disk: none
};

// What a sequence is when it opens.
struct SequenceContent {
  std::span<const TokenId> tokens;  // prompt and what was generated
  std::span<const ImageSpan> images;
  std::string_view tenant;
  Position original_prompt_tokens = 0;
  RetentionClass retention = RetentionClass::kChat;
  double us_per_token = 0;  // of computing a prompt, as measured; 0 = unknown
  // What another engine gives of it, and who gets what is computed here (kvcache/page_transfer.h); null: nobody.
  std::shared_ptr<PageLoad> handed;
  std::shared_ptr<PageSink> sink;
};

// The cache's side of a running sequence.
struct CachedSequence {
  SequenceLease lease;
  Position begin = 0;         // where computing starts
  Position write_floor = 0;   // H: pages before it are shared and stay as they are
  Position window_floor = 0;  // see ReplayStart
  Position noted_from = -1;   // of a state with draft rings: WholeState; -1: it has none
  // The next position at which a chunk must end, 0 = none: a snapshot is due there.
  Position cut() const { return cuts.empty() ? 0 : cuts.front(); }

  PrefixVerdict verdict;  // for usage figures and explanations

  // The cache's own notes.
  PageKey root;
  std::vector<PageKey> keys;  // of complete pages
  size_t published = 0;       // pages [0, published) are shared or published
  size_t announced = 0;       // keys [published, announced) are announced
  uint32_t prompt = 0;        // its number in the index
  bool publishes = false;
  Position exact_from = 0;
  std::vector<Position> cuts;              // ascending
  int32_t filling = SnapshotShelf::kNone;  // snapshot being taken, at position `filling_at`
  Position filling_at = 0;
  Position opened_tokens = 0;
  std::vector<Position> own_snapshots;  // borders at which this sequence left one while it grew
  Position computed = 0;

  // Of the store, or of whoever hands it pages.
  RetentionClass retention = RetentionClass::kChat;
  uint64_t tenant_tag = 0;
  bool asked_store = false;
  std::shared_ptr<PageLoad> load;  // what it waits for
  bool load_is_handed = false;
  bool load_announced = false;  // the page behind those that were here then
  size_t load_from = 0;         // its number
  std::shared_ptr<PageSink> sink;
};

enum class Opening {
  kOpened,
  kNoRoom,        // too few pages or slots
  kAwaitsPrefix,  // a running sequence is about to publish the next page of this prompt
  kLoading,       // the store is read for it, or its pages are on their way: ask again soon
};

struct PrefixStats {
  int64_t lookups = 0, hits = 0;
  int64_t hit_tokens = 0, lookup_tokens = 0;
  int64_t replayed_tokens = 0;  // of hit_tokens
  int64_t evicted_pages = 0, published_pages = 0;
  int32_t cached_pages = 0, snapshots = 0;
};

class SequenceCache {
 public:
  static Result<std::unique_ptr<SequenceCache>> create(Device& device, const KvLayout& layout,
                                                       const SequenceCacheOptions& options);

  // `reserve`: pages to leave free, one for each running sequence that may soon need it.
  Result<Opening> open(const SequenceContent& content, int64_t reserve, CachedSequence& out);
  // Room for `tokens` tokens; false when no page is left.
  bool grow(CachedSequence& sequence, int64_t tokens);
  // Behind the enqueued step that computes rows [begin, end). Some of the last rows may be rejected later; a snapshot of a page
  // border among them is dropped then.
  void step_enqueued(CachedSequence& sequence, Position begin, Position end);
  // After that step was waited for: rows below `computed` stay. `tokens` as far as known, at least as many.
  void step_done(CachedSequence& sequence, std::span<const TokenId> tokens, std::span<const ImageSpan> images, Position computed);
  // What the device was given up to `waited` has run, well or not: copies on their way to the store are whole, or lost.
  void settle(Ticket waited, bool good);
  // The same for everything, waiting for the device: when there is nothing else to do.
  void settle_all();
  // The time it is: snapshots live for minutes.
  void advance(int64_t now_us) { shelf_->advance(now_us); }
  // Something is being read from the store. Of a load that is over, poll_load() lets those go on that wait for its prefix.
  bool loading() const;
  void poll_load(CachedSequence& sequence);
  // Its `tokens` are computed, as far as they are: whoever gets its pages gets its state, too, and the one from which a prompt of
  // `original_prompt_tokens` resumes. Not good: it ended otherwise.
  struct Sent {
    const PageSink* sink = nullptr;  // null: nobody
    std::span<const TokenId> tokens;
    Position original_prompt_tokens = 0;
    Position noted_from = 0;
    bool good = false;
  };
  void finish_sending(CachedSequence& sequence, const Sent& sent);
  // REQUIRES: no step uses the sequence.
  void close(CachedSequence& sequence);

  SequenceStore& store() { return *store_; }
  const SequenceStore& store() const { return *store_; }
  // Of pages that others may be told of: PrefixIndex::changes().
  void keep_page_changes() { index_->keep_changes(); }
  std::vector<PageChange>& page_changes() { return index_->changes(); }

  PrefixStats stats() const;
  StoreTierStats tier_stats() const { return tier_ ? tier_->stats() : StoreTierStats(); }  // from any thread

 private:
  // Pages on their way out.
  struct Sending {
    std::shared_ptr<PageSink> sink;
    size_t staged = 0;  // pages whose copies are enqueued
    Ticket ticket = 0;  // of the last of them
    bool told = true;   // the sink knows of them
    bool closed = false;
    Position border = 0;
    WholeState whole;
  };
  explicit SequenceCache(const SequenceCacheOptions& options);
  void resume(const SequenceContent& content, CachedSequence& out) const;
  void restore(CachedSequence& out);
  void plan_snapshots(const SequenceContent& content, CachedSequence& out) const;
  void publish(CachedSequence& sequence, std::span<const TokenId> tokens, Position computed);
  void shelve(CachedSequence& sequence);
  int32_t page_before(const CachedSequence& sequence, Position border) const;

  // Out of this cache and into it (sequence_cache_hand_over.cc).
  void send_pages(CachedSequence& sequence);
  void settle_sent(Ticket waited, bool good);
  void await_handed(const SequenceContent& content, CachedSequence& out);
  bool restore_whole(const SequenceContent& content, CachedSequence& out);
  Position copy_border_state(const CachedSequence& sequence, Position original_prompt_tokens) const;

  // With the store (sequence_cache_tier.cc).
  bool awaits_load(const SequenceContent& content, CachedSequence& out);
  void ask_store_why(const SequenceContent& content, CachedSequence& out) const;
  std::shared_ptr<StoreLoad> worth_loading(const SequenceContent& content, const CachedSequence& out) const;
  void take_loaded(const SequenceContent& content, CachedSequence& out, PageLease& pages);
  void take_loaded_snapshot(PageLoad& load);
  void retire_load(CachedSequence& sequence, Ticket ticket);
  void end_load(CachedSequence& sequence);
  void withdraw_load(CachedSequence& sequence);
  void stage_page(const CachedSequence& sequence, size_t index);
  void stage_lost(const CachedSequence& sequence);
  void stage_snapshot(const CachedSequence& sequence, Position border);
  void stage_turn_end(const CachedSequence& sequence);

  const SequenceCacheOptions options_;
  const int32_t page_tokens_;
  std::unique_ptr<SequenceStore> store_;
  std::unique_ptr<SnapshotShelf> shelf_;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<StoreTier> tier_;  // null: none
  // Pages that were loaded are published before their upload has been waited for: the device works in order, so whoever reads
  // them comes behind it. These are the ones of which it is not known yet that it went well.
  std::vector<int32_t> unproven_;
  Ticket unproven_ticket_ = 0;
  std::vector<Sending> sending_;
  // Loads that the device may still read from, and sinks that it may still write to.
  std::vector<std::pair<std::shared_ptr<const void>, Ticket>> taken_;
  int32_t handed_loads_ = 0;      // waited for
  std::vector<uint32_t> staged_;  // by page: tier_->losses() + 1 when it was last stored; 0: not
  PrefixMatch found_;
  PrefixStats stats_;
};

}  // namespace deepinfer
