// policy/fair_lanes.h - whose request is placed next, over the whole cluster (cluster.md section 4).
//
// Requests that wait for a slot stand in lanes by priority and tenant. Of the highest priority the tenant with the fewest tokens
// computed for it (policy/fairness.h) goes first, and of one tenant the oldest. Threads: one at a time.
//
//   lanes.add(priority, tenant, request);
//   if (auto* next = lanes.next(accounts)) ... place it, then lanes.take();     // what next() gave
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "policy/fairness.h"

namespace deepinfer {

// May a tenant with `mine` requests inside have one more, where `inside` of `room` are taken? It fills the slots of the fleet if
// nobody else wants them; of what may wait beyond these, no tenant takes more than is left for all others (dynamic thresholds,
// Choudhury and Hahne 1998): one tenant gets half of it, two a third each, and who comes new always finds a place.
inline bool may_enter(int64_t mine, int64_t inside, int64_t room, int64_t slots) {
  return inside < room && (mine < slots || mine < room - inside);
}

template <class T>
class FairLanes {
 public:
  void add(int32_t priority, int32_t tenant, T item) { levels_[priority][tenant].push_back(std::move(item)); }
  bool empty() const { return levels_.empty(); }

  // Null: nobody waits.
  T* next(const TokenAccounts& accounts) {
    if (empty()) return nullptr;
    auto& lanes = levels_.begin()->second;
    chosen_ = std::min_element(lanes.begin(), lanes.end(), [&](const auto& a, const auto& b) {
                return accounts.tokens(a.first) < accounts.tokens(b.first);
              })->first;
    return &lanes[chosen_].front();
  }
  // Of what next() gave. REQUIRES: nothing was done since.
  void take() {
    auto& lanes = levels_.begin()->second;
    lanes[chosen_].pop_front();
    if (lanes[chosen_].empty()) lanes.erase(chosen_);
    if (lanes.empty()) levels_.erase(levels_.begin());
  }

 private:
  std::map<int32_t, std::map<int32_t, std::deque<T>>, std::greater<>> levels_;  // by priority, by tenant
  int32_t chosen_ = -1;
};

}  // namespace deepinfer
