#include "engine/mask_worker.h"

#include <algorithm>

#include "base/result.h"

namespace deepinfer {
namespace {

constexpr uint64_t kStop = UINT64_MAX;
constexpr uint64_t kClosed = UINT32_MAX;  // groups begun: none is left
constexpr int64_t kGraceUs = 4000;        // so long a step waits for masks that are not ready when the model is
// A thread that wakes where the model's threads have every processor costs a step of 3 ms about 0.1 ms.
constexpr int64_t kWorthAThreadUs = 60;

}  // namespace

MaskWorker::~MaskWorker() {
  step_.store(kStop);
  step_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskWorker::begin(std::span<const DrawRow> rows, int32_t vocab) {
  // Closes the step before to a late thread before anything it would read changes.
  const uint64_t step = step_.load() + 1;
  begun_.store(step << 32 | kClosed);
  groups_.clear();
  words_.clear();
  rows_.assign(rows.begin(), rows.end());
  states_.assign(rows.size(), MaskFill::kReady);
  // What took long before comes last, so that the others are ready.
  add_groups(rows, false);
  first_waiting_ = groups_.size();
  add_groups(rows, true);
  if (groups_.empty()) return;
  deadline_.clear();
  row_words_ = static_cast<size_t>(vocab + 31) / 32;
  words_.assign(rows.size() * row_words_, ~0u);
  done_.store(0);
  num_groups_.store(groups_.size());
  begun_.store(step << 32);
  step_.store(step);
  if (spent_us_.exchange(0) > kWorthAThreadUs) wake();
}

void MaskWorker::wake() {
  step_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void MaskWorker::add_groups(std::span<const DrawRow> rows, bool waiting) {
  for (size_t i = 0, end; i < rows.size(); i = end) {
    for (end = i + 1; end < rows.size() && rows[end].sequence == rows[i].sequence;) ++end;
    if (rows[i].sequence->masked && rows[i].sequence->mask_waits == waiting) groups_.push_back({i, end});
  }
}

const std::vector<uint32_t>& MaskWorker::finish() {
  if (groups_.empty()) return words_;
  deadline_.set(MaskDeadline::now_us() + kGraceUs);
  fill_groups(step_.load());
  for (uint64_t done = done_.load(); done < groups_.size(); done = done_.load()) done_.wait(done);
  groups_.clear();
  return words_;
}

void MaskWorker::work() {
  for (uint64_t seen = 0;;) {
    step_.wait(seen);
    seen = step_.load();
    if (seen == kStop) return;
    fill_groups(seen);
  }
}

void MaskWorker::fill_groups(uint64_t step) {
  for (uint64_t begun = begun_.load();;) {
    const size_t group = begun & UINT32_MAX;
    if (begun >> 32 != (step & UINT32_MAX) || group >= num_groups_.load()) return;
    // The groups are those of this step only once the exchange has shown that its number still stands.
    if (!begun_.compare_exchange_weak(begun, begun + 1)) continue;
    const int64_t start_us = MaskDeadline::now_us();
    fill(groups_[group], group == first_waiting_);
    spent_us_.fetch_add(MaskDeadline::now_us() - start_us);
    done_.fetch_add(1);
    done_.notify_one();
    begun = begun_.load();
  }
}

// Rows of a verification see the mask's state behind their drafts, which were cut where the mask refuses one.
void MaskWorker::fill(const Group& group, bool always) {
  const Sequence& sequence = *rows_[group.begin].sequence;
  TokenMask* mask = sequence.mask.get();
  int32_t accepted = 0;
  std::fill(states_.begin() + static_cast<std::ptrdiff_t>(group.begin), states_.begin() + static_cast<std::ptrdiff_t>(group.end),
            MaskFill::kUnfinished);
  // One of those that wait is brought forward in every step, however long the others take.
  if (sequence.mask_waits && !always && MaskDeadline::now_us() >= deadline_.at_us()) return;
  for (size_t i = group.begin; i < group.end; ++i) {
    const int32_t drafts = rows_[i].drafts;
    if (drafts > 0 && !mask->accept(sequence.drafts.tokens[static_cast<size_t>(drafts) - 1])) {
      states_[i] = MaskFill::kFailed;  // its limits were reached on the way
      break;
    }
    accepted = drafts;
    states_[i] = mask->fill(std::span(words_).subspan(i * row_words_, row_words_), deadline_);
    if (states_[i] != MaskFill::kReady) break;
  }
  if (accepted > 0) mask->rollback(accepted);
}

}  // namespace deepinfer
