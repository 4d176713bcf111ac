#include "kvcache/page_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {

PageLease::~PageLease() {
  if (pool_) pool_->give_back(pages_);
}

void PageLease::append(PageLease more) {
  if (!more.pool_) return;
  DI_CHECK(!pool_ || pool_ == more.pool_);
  pool_ = std::exchange(more.pool_, nullptr);
  pages_.insert(pages_.end(), more.pages_.begin(), more.pages_.end());
}

void PageLease::replace(size_t index, int32_t page) {
  PageLease other = pool_->share({&page, 1});
  std::swap(pages_[index], other.pages_[0]);
}

PagePool::PagePool(int32_t num_pages, EvictionPolicy policy)
    : num_pages_(num_pages), pages_(static_cast<size_t>(num_pages)), policy_(policy), cached_(kPageRanks, LruList(num_pages)) {
  free_.reserve(static_cast<size_t>(num_pages));
  for (int32_t page = num_pages; page-- > 0;) free_.push_back(page);
}

Result<PageLease> PagePool::lease(int64_t num_pages) {
  if (num_pages > num_free()) {
    return exhausted(
        fmt::format("{} pages wanted, {} of {} are free: wait for running requests", num_pages, num_free(), num_pages_));
  }
  const auto first = free_.end() - num_pages;
  std::vector<int32_t> pages(first, free_.end());
  std::reverse(pages.begin(), pages.end());
  free_.erase(first, free_.end());
  for (const int32_t page : pages) at(page).holders = 1;
  num_leased_ += static_cast<int32_t>(num_pages);
  come_ += num_pages;
  return PageLease(this, std::move(pages));
}

PageLease PagePool::share(std::span<const int32_t> pages) {
  for (const int32_t page : pages) {
    DI_CHECK(at(page).holders > 0 || at(page).kept);
    if (at(page).holders++ > 0) continue;
    cached_[at(page).rank].remove(page);
    ++num_leased_;
  }
  return PageLease(this, {pages.begin(), pages.end()});
}

void PagePool::keep(int32_t page) {
  DI_CHECK(at(page).holders > 0);
  at(page).kept = true;
}

void PagePool::drop(int32_t page) {
  DI_CHECK(at(page).kept);
  at(page).kept = false;
  if (at(page).holders > 0) return;
  cached_[at(page).rank].remove(page);
  free_.push_back(page);
}

int32_t PagePool::stalest_cached() const {
  int32_t stalest = LruList::kNone;
  double most = -1;
  for (size_t rank = 0; rank < kPageRanks; ++rank) {
    const int32_t page = cached_[rank].oldest();
    if (page == LruList::kNone) continue;
    const double stale = staleness(policy_, rank, come_ - pages_[static_cast<size_t>(page)].since, num_pages_);
    if (stale > most) stalest = page, most = stale;
  }
  return stalest;
}

void PagePool::note(int32_t page, const PageHistory& history) {
  at(page).history = history;
  if (at(page).holders > 0 || policy_ == EvictionPolicy::kLru) return;
  cached_[at(page).rank].remove(page);
  wait(page);
}

void PagePool::wait(int32_t page) {
  Page& waits = at(page);
  waits.rank = static_cast<uint8_t>(policy_ == EvictionPolicy::kLru ? 0 : page_rank(waits.history));
  waits.since = come_;
  cached_[waits.rank].add(page);
}

void PagePool::give_back(std::span<const int32_t> pages) {
  bool ends = true;  // the last page of the sequence that is worth keeping
  for (size_t i = pages.size(); i-- > 0;) {
    Page& page = at(pages[i]);
    DI_CHECK(page.holders > 0);
    if (--page.holders > 0) continue;
    --num_leased_;
    if (page.kept) {
      page.history.ends = std::exchange(ends, false);
      wait(pages[i]);
    } else {
      free_.push_back(pages[i]);
    }
  }
}

bool PagePool::balanced() const {
  std::vector<int32_t> seen(pages_.size(), 0);
  const auto count = [&](int32_t page) { ++seen[static_cast<size_t>(page)]; };
  for (const int32_t page : free_) count(page);
  for (const LruList& waiting : cached_) {
    for (int32_t page = waiting.oldest(); page != LruList::kNone; page = waiting.newer_than(page)) count(page);
  }
  int32_t leased = 0;
  for (size_t i = 0; i < pages_.size(); ++i) {
    seen[i] += pages_[i].holders > 0;
    leased += pages_[i].holders > 0;
  }
  return leased == num_leased_ && std::all_of(seen.begin(), seen.end(), [](int32_t n) { return n == 1; });
}

}  // namespace deepinfer
