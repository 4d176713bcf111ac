#include "engine/mask_worker.h"

#include <algorithm>

#include "base/result.h"

namespace deepinfer {
namespace {

constexpr uint64_t kStop = UINT64_MAX;
constexpr uint64_t kClosed = UINT32_MAX;  // groups begun: none is left

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
  for (size_t i = 0, end; i < rows.size(); i = end) {
    for (end = i + 1; end < rows.size() && rows[end].sequence == rows[i].sequence;) ++end;
    if (rows[i].sequence->masked) groups_.push_back({i, end});
  }
  if (groups_.empty()) return;
  row_words_ = static_cast<size_t>(vocab + 31) / 32;
  words_.assign(rows.size() * row_words_, ~0u);
  done_.store(0);
  num_groups_.store(groups_.size());
  begun_.store(step << 32);
  step_.store(step);
  step_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

const std::vector<uint32_t>& MaskWorker::finish() {
  if (groups_.empty()) return words_;
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
    fill(groups_[group]);
    done_.fetch_add(1);
    done_.notify_one();
    begun = begun_.load();
  }
}

// Rows of a verification see the mask's state behind their drafts, which were cut where the mask refuses one.
void MaskWorker::fill(const Group& group) {
  const Sequence& sequence = *rows_[group.begin].sequence;
  TokenMask* mask = sequence.mask.get();
  int32_t drafts = 0;
  for (size_t i = group.begin; i < group.end; ++i) {
    drafts = rows_[i].drafts;
    if (drafts > 0) DI_CHECK(mask->accept(sequence.drafts.tokens[static_cast<size_t>(drafts) - 1]));
    mask->fill(std::span(words_).subspan(i * row_words_, row_words_));
  }
  if (drafts > 0) mask->rollback(drafts);
}

}  // namespace deepinfer
