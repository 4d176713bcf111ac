#include "scheduler/prompt_shares.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace deepinfer {
namespace {

// What is left, over those that still come, the smallest wish first: what it does not take raises the share of all behind it.
int64_t share_of(int64_t wanted, int64_t left, size_t still_to_come) {
  const auto parts = static_cast<int64_t>(still_to_come);
  return std::min(wanted, (left + parts - 1) / parts);
}

}  // namespace

// The tenants of the level that begins at `begin`; gives its end.
size_t PromptShares::level_end(size_t begin) {
  tenants_.clear();
  size_t i = begin;
  for (; i < order_.size() && wishes_[order_[i]].priority == wishes_[order_[begin]].priority; ++i) {
    const PromptWish& wish = wishes_[order_[i]];
    if (i == begin || wish.tenant != wishes_[order_[i - 1]].tenant) tenants_.push_back({i, i, 0});
    tenants_.back().end = i + 1;
    tenants_.back().wanted += wish.wanted;
  }
  return i;
}

int64_t PromptShares::divide_level(int64_t rows) {
  const auto less = [](const Tenant& a, const Tenant& b) { return std::tie(a.wanted, a.begin) < std::tie(b.wanted, b.begin); };
  std::sort(tenants_.begin(), tenants_.end(), less);
  for (size_t t = 0; t < tenants_.size(); ++t) {
    const Tenant& tenant = tenants_[t];
    int64_t left = share_of(tenant.wanted, rows, tenants_.size() - t);
    rows -= left;
    for (size_t i = tenant.begin; i < tenant.end; ++i) {
      rows_[order_[i]] = share_of(wishes_[order_[i]].wanted, left, tenant.end - i);
      left -= rows_[order_[i]];
    }
  }
  return rows;
}

// Among all from `first` on.
void PromptShares::divide_among(size_t first, int64_t rows) {
  order_.resize(wishes_.size() - first);
  std::iota(order_.begin(), order_.end(), first);
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    const PromptWish &x = wishes_[a], &y = wishes_[b];
    return std::tie(y.priority, x.tenant, x.wanted, a) < std::tie(x.priority, y.tenant, y.wanted, b);
  });
  for (size_t begin = 0; begin < order_.size();) {
    begin = level_end(begin);
    rows = divide_level(rows);
  }
}

void PromptShares::divide(int64_t rows) {
  rows_.assign(wishes_.size(), 0);
  if (wishes_.empty()) return;
  divide_among(0, rows);
  const int64_t least = std::min(wishes_[0].wanted, (rows + kOldestPart - 1) / kOldestPart);
  if (rows_[0] >= least) return;
  rows_[0] = least;
  divide_among(1, rows - least);
}

}  // namespace deepinfer
