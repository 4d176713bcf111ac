#include "scheduler/prompt_shares.h"

#include <algorithm>
#include <tuple>

namespace deepinfer {
namespace {

// What is left, over those that still come, the smallest wish first: what it does not take raises the share of all behind it.
int64_t share_of(int64_t wanted, int64_t left, size_t still_to_come) {
  const auto parts = static_cast<int64_t>(still_to_come);
  return std::min(wanted, (left + parts - 1) / parts);
}

// The highest priority first.
uint64_t group_of(const PromptWish& wish) {
  const uint32_t level = ~(static_cast<uint32_t>(wish.priority) ^ 0x80000000u);
  return uint64_t{level} << 32 | static_cast<uint32_t>(wish.tenant);
}

}  // namespace

// The tenants of the level that begins at `begin`; gives its end.
size_t PromptShares::level_end(size_t begin) {
  tenants_.clear();
  size_t i = begin;
  for (; i < order_.size() && order_[i].group >> 32 == order_[begin].group >> 32; ++i) {
    if (i == begin || order_[i].group != order_[i - 1].group) tenants_.push_back({i, i, 0});
    tenants_.back().end = i + 1;
    tenants_.back().wanted += order_[i].wanted;
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
      const int64_t share = share_of(order_[i].wanted, left, tenant.end - i);
      rows_[order_[i].index] = share;
      left -= share;
    }
  }
  return rows;
}

void PromptShares::divide_all(int64_t rows) {
  for (size_t begin = 0; begin < order_.size();) {
    begin = level_end(begin);
    rows = divide_level(rows);
  }
}

void PromptShares::divide(int64_t rows) {
  rows_.assign(wishes_.size(), 0);
  if (wishes_.empty()) return;
  order_.clear();
  for (size_t i = 0; i < wishes_.size(); ++i) order_.push_back({group_of(wishes_[i]), wishes_[i].wanted, i});
  std::sort(order_.begin(), order_.end(), [](const Item& a, const Item& b) {
    return std::tie(a.group, a.wanted, a.index) < std::tie(b.group, b.wanted, b.index);
  });
  divide_all(rows);
  const int64_t least = std::min(wishes_[0].wanted, (rows + kOldestPart - 1) / kOldestPart);
  if (rows_[0] >= least) return;
  rows_[0] = least;
  std::erase_if(order_, [](const Item& item) { return item.index == 0; });
  divide_all(rows - least);
}

}  // namespace deepinfer
