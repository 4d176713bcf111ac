// cluster/handed_pages.h - the two ends of a hand-over inside a process: what an engine fills, and what one takes.
//
// Threads: the parts of PageSink and PageLoad the engine's; of OutgoingPages the rest the exchange's, which meets the engine in
// atomics; of IncomingPages everything under its lock, until it is over: then it is the engine's.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/page_exchange.h"

namespace deepinfer {

class OutgoingPages final : public PageSink {
 public:
  enum class End : uint8_t { kOpen, kWhole, kBroken };

  // `moved` is called when there is more to send.
  OutgoingPages(const PageAddress& address, const PageFormat& format, std::function<void()> moved)
      : to(address),
        page_bytes_(format.page_bytes),
        keys_(to.end - to.first),
        pages_(std::make_unique_for_overwrite<uint8_t[]>(keys_.size() * page_bytes_)),
        state_(std::make_unique_for_overwrite<uint8_t[]>(format.state_bytes)),
        whole_(std::make_unique_for_overwrite<uint8_t[]>(format.whole_bytes)),
        moved_(std::move(moved)) {}

  uint8_t* page(size_t index, const PageKey& key) override {
    if (index < to.first || index >= to.end) return nullptr;
    keys_[index - to.first] = key;
    return pages_.get() + (index - to.first) * page_bytes_;
  }
  void written(size_t end) override {
    written_.store(std::clamp(end, to.first, to.end), std::memory_order_release);
    moved_();
  }
  uint8_t* state() override { return state_.get(); }
  uint8_t* whole_state() override { return whole_.get(); }
  void close(Position border, const WholeState& whole, bool good) override {
    border_ = border;
    whole_state_ = whole;
    end_.store(good ? End::kWhole : End::kBroken, std::memory_order_release);
    moved_();
  }

  const PageAddress to;
  size_t ready() const { return written_.load(std::memory_order_acquire); }
  End end() const { return end_.load(std::memory_order_acquire); }
  Position border() const { return border_; }
  const PageKey& key(size_t index) const { return keys_[index - to.first]; }
  std::span<const uint8_t> bytes(size_t begin, size_t end) const {
    return {pages_.get() + (begin - to.first) * page_bytes_, (end - begin) * page_bytes_};
  }
  const uint8_t* state_bytes() const { return state_.get(); }
  const WholeState& whole() const { return whole_state_; }
  const uint8_t* whole_bytes() const { return whole_.get(); }

  // The exchange's notes.
  LinkId link = 0;
  size_t sent = to.first, taken = to.first;  // taken: the receiver says so
  int32_t in_flight = 0, tries = 0;
  bool all_sent = false;
  int64_t closed_us = 0;

 private:
  const size_t page_bytes_;
  std::vector<PageKey> keys_;
  std::unique_ptr<uint8_t[]> pages_, state_, whole_;
  const std::function<void()> moved_;
  std::atomic<size_t> written_{to.first};
  std::atomic<End> end_{End::kOpen};
  Position border_ = 0;
  WholeState whole_state_;
};

class IncomingPages final : public PageLoad {
 public:
  IncomingPages(size_t page_bytes, int64_t stall_us, std::atomic<int64_t>& late)
      : page_bytes_(page_bytes), stall_us_(stall_us), late_(late), begun_us_(clock_.now_us()), heard_us_(begun_us_) {}

  bool is_over() override {
    const std::lock_guard lock(mutex_);
    if (over_) return true;
    const int64_t now_us = clock_.now_us();
    if (!ended_ && now_us - heard_us_ < stall_us_ && now_us - wanted_us_ < kLongest * stall_us_) return false;
    over_ = true;
    snapshot = std::move(state_);
    if (whole_) whole_bytes = std::move(whole_state_);
    if (whole_) return true;
    reason = MissReason::kLate;
    ++late_;
    return true;
  }
  size_t ready(std::span<const PageKey> keys) const override {
    size_t good = 0;
    for (const auto& [end, key] : chunks_) {
      if (end > keys.size() || keys[end - 1] != key) break;
      good = end - first;
    }
    return good;
  }
  const uint8_t* page(size_t i) const override { return pages_at_[i]; }

  void want() {
    const std::lock_guard lock(mutex_);
    wanted_us_ = clock_.now_us();
    heard_us_ = std::max(heard_us_, wanted_us_);
    wanted_ = true;
  }
  // Pages [begin, end) of the prompt, the last one by that key. Gives up to where all is there; what came before is no news.
  size_t add(size_t begin, size_t end, const PageKey& last, std::unique_ptr<uint8_t[]> bytes) {
    const std::lock_guard lock(mutex_);
    if (over_ || ended_) return first + pages;
    if (pages == 0) first = begin;
    heard_us_ = clock_.now_us();
    if (begin != first + pages) return first + pages;
    for (size_t i = begin; i < end; ++i) pages_at_.push_back(bytes.get() + (i - begin) * page_bytes_);
    pages = end - first;
    chunks_.emplace_back(end, last);
    memory_.push_back(std::move(bytes));
    return end;
  }
  void add_state(Position at, std::unique_ptr<uint8_t[]> bytes) {
    const std::lock_guard lock(mutex_);
    if (over_ || ended_) return;
    heard_us_ = clock_.now_us();
    border = at;
    state_ = std::move(bytes);
  }
  void add_whole(const WholeState& at, std::unique_ptr<uint8_t[]> bytes) {
    const std::lock_guard lock(mutex_);
    if (over_ || ended_) return;
    heard_us_ = clock_.now_us();
    whole = at;
    whole_state_ = std::move(bytes);
  }
  // Microseconds since the first byte, when it is whole and in time; else less than 0.
  int64_t end(bool whole) {
    const std::lock_guard lock(mutex_);
    if (over_ || ended_) return -1;
    ended_ = true;
    whole_ = whole;
    return whole ? clock_.now_us() - begun_us_ : -1;
  }
  // Where pages from `begin` on would be news.
  bool takes(size_t begin) const {
    const std::lock_guard lock(mutex_);
    return !over_ && !ended_ && (pages == 0 || begin == first + pages);
  }
  // Of what broke off nothing is kept if nobody waits for it. False: somebody does.
  bool drop() {
    const std::lock_guard lock(mutex_);
    if (wanted_) return false;
    pages = 0;
    chunks_.clear(), pages_at_.clear(), memory_.clear();
    state_.reset(), whole_state_.reset();
    border = 0, whole = {};
    return true;
  }
  // Asked for once; if nobody has it any more, nobody will.
  bool was_wanted() const {
    const std::lock_guard lock(mutex_);
    return wanted_;
  }
  int64_t silent_us() const {
    const std::lock_guard lock(mutex_);
    return clock_.now_us() - heard_us_;
  }

  // The exchange's notes.
  int64_t bytes_held = 0;
  bool was_refused = false;

 private:
  static constexpr int64_t kLongest = 10;  // times `stall_us`, however steadily it trickles

  const size_t page_bytes_;
  const int64_t stall_us_;
  std::atomic<int64_t>& late_;
  const SteadyClock clock_;
  mutable std::mutex mutex_;
  const int64_t begun_us_;
  int64_t heard_us_ = 0, wanted_us_ = 0;
  bool over_ = false, ended_ = false, whole_ = false, wanted_ = false;
  std::vector<std::pair<size_t, PageKey>> chunks_;  // where each ends, and the key before that border
  std::vector<const uint8_t*> pages_at_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
  std::unique_ptr<uint8_t[]> state_, whole_state_;
};

}  // namespace deepinfer
