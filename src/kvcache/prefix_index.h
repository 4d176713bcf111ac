// kvcache/prefix_index.h - which pages hold which prefix.
//
// Published pages form trees: a page's parent is the page before it. A page is published once, when its last token has been
// computed, and never changes afterwards; it stays until the pool needs its room, the stalest end of a chain
// first (policy/eviction.h). Lookup is by key, then by comparing token ids, so a collision is a miss. A page that a running
// sequence is about to publish can be announced: requests with the same prefix wait for it instead of computing it again.
// Promise: publish() and match() allocate nothing once warm, apart from growing tables and the sides of a difference.
// Threads: one thread.
//
//   PrefixMatch found;
//   index.match(root, keys, tokens, found);           // found.pages: shared by pool.share()
//   index.publish(root, keys, 0, tokens, -1, page);   // first page of a chain
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/prefix_verdict.h"
#include "core/types.h"
#include "kvcache/page_key.h"
#include "kvcache/page_pool.h"
#include "kvcache/snapshot_shelf.h"

namespace deepinfer {

struct PrefixMatch {
  std::vector<int32_t> pages;
  PrefixVerdict verdict;  // without replayed_tokens
};

class PrefixIndex {
 public:
  // `pool` and `shelf` must outlive the index.
  PrefixIndex(PagePool& pool, SnapshotShelf& shelf, int32_t page_tokens);

  void match(const PageKey& root, std::span<const PageKey> keys, std::span<const TokenId> tokens, PrefixMatch& out) const;

  // A prompt of so many complete pages is served from these, found and held. Returns its number, which publish() takes for the
  // pages it adds.
  uint32_t begin(std::span<const int32_t> pages, size_t prompt_pages);

  // Page `index` of a chain, held by the caller, whose page before is `parent` (-1 for the first). Returns the page to use
  // for it: `page`, or the one published under this key before, whose content is the same; -1 when another content has that
  // key (this chain ends here then).
  int32_t publish(const PageKey& root, std::span<const PageKey> keys, size_t index, std::span<const TokenId> tokens,
                  int32_t parent, int32_t page, uint32_t prompt = 0);

  // A published page turns out to be unsound: it goes with all that continues it.
  void forget(int32_t page);

  // Evicts cached pages until `pages` are free; false, and nothing evicted, when there are not enough.
  bool make_room(int64_t pages);

  void announce(const PageKey& key) { ++announced_[key]; }
  void withdraw(const PageKey& key);
  bool announced(const PageKey& key) const { return announced_.contains(key); }

  // Of a published page.
  std::span<const TokenId> tokens_of(int32_t page) const;
  int64_t num_evicted() const { return num_evicted_; }

  // Keeps what comes and goes from now on, until it is taken.
  void keep_changes() { keeps_changes_ = true; }
  std::vector<PageChange>& changes() { return changes_; }

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    PageKey key, parent_key;
    int32_t first_child = kNone, previous = kNone, next = kNone;  // children of one parent form a list
    bool starts = false;                                          // the first page of its prompts
    uint32_t prompt = 0, user = 0;                                // that made it; that used it last
    bool came_back = false, aside = false;                        // it was evicted before; policy/eviction.h
    int32_t turn = 0;                                             // of its conversation
    int32_t uses = 0;                                             // its turn's at first (policy/eviction.h)
  };
  // What is remembered of an evicted page.
  struct Ghost {
    PageKey key;
    int32_t turn = 0, uses = 0;
  };

  Node& at(int32_t page) { return nodes_[static_cast<size_t>(page)]; }
  const Node& at(int32_t page) const { return nodes_[static_cast<size_t>(page)]; }
  int32_t find(const PageKey& key, std::span<const TokenId> tokens) const;
  int32_t& children_of(const PageKey& parent_key, int32_t parent);
  void explain(const PageKey& parent_key, std::span<const PageKey> keys, std::span<const TokenId> tokens, PrefixMatch& out) const;
  std::shared_ptr<const PrefixSides> sides_of(std::span<const TokenId> tokens, size_t parting, int32_t page, size_t same) const;
  void evict(int32_t page);
  void remember_evicted(const Node& node);
  void leave(int32_t page, uint32_t user);
  void rank(int32_t page, size_t index, size_t pages, int32_t parent);
  void note_change(const PageKey& key, bool stored) {
    if (keeps_changes_) changes_.push_back({key, stored});
  }
  void count_first_page(std::span<const TokenId> content, int32_t change);

  PagePool& pool_;
  SnapshotShelf& shelf_;
  const size_t page_tokens_;
  std::vector<Node> nodes_;      // by page
  std::vector<TokenId> tokens_;  // by page
  std::unordered_map<PageKey, int32_t, PageKeyHash> pages_;
  std::unordered_map<PageKey, int32_t, PageKeyHash> roots_;  // first child of each root
  std::unordered_map<uint64_t, int32_t> first_pages_;        // by token ids, over all roots: for explanations
  std::unordered_map<PageKey, int32_t, PageKeyHash> announced_;
  std::unordered_map<PageKey, size_t, PageKeyHash> evicted_;  // the last of them, for explanations and when they come back
  std::vector<Ghost> evicted_order_;
  uint32_t prompts_ = 0;
  size_t next_evicted_ = 0;
  int64_t num_evicted_ = 0;
  bool keeps_changes_ = false;
  std::vector<PageChange> changes_;
};

}  // namespace deepinfer
