// kvcache/page_pool.h - page numbers and who holds them.
//
// A page is free, leased (by one sequence or several that share a prefix) or cached (nobody holds it, its content is worth
// keeping). A PageLease gives its pages back when it goes: cached ones wait by rank (policy/eviction.h), last page first, so that
// of a chain the end has waited longer than the beginning. Pages come in any order: nothing may depend on a page's number.
// Promise: free + leased + cached = all, at any time. Every call is O(pages it names).
// Threads: one thread.
//
//   PagePool pool(1024);
//   DI_TRY(PageLease lease, pool.lease(3));
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/lru_list.h"
#include "base/result.h"
#include "policy/eviction.h"

namespace deepinfer {

class PagePool;

// Pages held by one sequence, in order of position. Must not outlive its pool.
class PageLease {
 public:
  PageLease() = default;
  PageLease(PageLease&& other) noexcept { *this = std::move(other); }
  PageLease& operator=(PageLease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~PageLease();

  std::span<const int32_t> pages() const { return pages_; }
  // Takes the pages of `more` over, behind its own. REQUIRES: of the same pool.
  void append(PageLease more);
  // Holds `page` instead of the page at `index`, which it gives back. REQUIRES: `page` is leased or cached.
  void replace(size_t index, int32_t page);

 private:
  friend class PagePool;
  PageLease(PagePool* pool, std::vector<int32_t> pages) : pool_(pool), pages_(std::move(pages)) {}

  PagePool* pool_ = nullptr;
  std::vector<int32_t> pages_;
};

class PagePool {
 public:
  explicit PagePool(int32_t num_pages, EvictionPolicy policy = EvictionPolicy::kUses);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // kExhausted when fewer are free (cached pages are not: evict them first); nothing is taken then.
  Result<PageLease> lease(int64_t num_pages);
  // Holds leased or cached pages once more.
  PageLease share(std::span<const int32_t> pages);

  // The content of a leased page is worth keeping when its last holder goes.
  void keep(int32_t page);
  // The opposite; a page nobody holds becomes free.
  void drop(int32_t page);
  // What is known of a leased page, for when it waits, or of one that waits, which then waits anew.
  void note(int32_t page, const PageHistory& history);
  bool waits(int32_t page) const { return pages_[static_cast<size_t>(page)].holders == 0; }
  // The cached page that is to go first; -1 if there is none.
  int32_t stalest_cached() const;

  int32_t num_pages() const { return num_pages_; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_leased() const { return num_leased_; }
  int32_t num_cached() const { return num_pages_ - num_free() - num_leased_; }
  // Every page is exactly once free, leased or cached. O(pages): for tests and idle checks.
  bool balanced() const;

 private:
  friend class PageLease;
  struct Page {
    int32_t holders = 0;
    bool kept = false;
    PageHistory history;
    uint8_t rank = 0;   // while it is cached
    int64_t since = 0;  // how many pages had come by then
  };

  void give_back(std::span<const int32_t> pages);
  void wait(int32_t page);
  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }

  int32_t num_pages_;
  int32_t num_leased_ = 0;
  std::vector<int32_t> free_;  // last one is taken first
  std::vector<Page> pages_;
  const EvictionPolicy policy_;
  int64_t come_ = 0;             // pages leased so far
  std::vector<LruList> cached_;  // by rank
};

}  // namespace deepinfer
