// engine/waiting_queue.h - requests without a slot, and who is next.
//
// The next one is of the highest priority, of those of the tenant with the fewest tokens (policy/fairness.h), of those the
// oldest. Requests stand in a lane by priority and tenant, so a choice looks at lanes and not at requests, of which there may be
// ten thousand. One that waits for a prefix that a running request is about to publish is passed over until the next round; a
// round passes over kMostPassed at most, because asking again costs a lookup each. Promise: push, find and take cost O(log
// requests); next costs O(lanes). Threads: the engine's.
//
//   queue.begin_round();
//   while (Sequence* next = queue.next(accounts)) { if (opens(*next)) start(queue.take(*next)); else queue.pass_over(*next); }
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/sequence.h"
#include "policy/fairness.h"

namespace deepinfer {

class WaitingQueue {
 public:
  static constexpr int32_t kMostPassed = 32;

  void push(std::unique_ptr<Sequence> sequence);
  Sequence* find(RequestId id) const;
  std::unique_ptr<Sequence> take(const Sequence& sequence);

  // Everybody may be asked again.
  void begin_round();
  // Null: nobody, or too many were passed over.
  Sequence* next(const TokenAccounts& accounts) const;
  void pass_over(Sequence& sequence);

  size_t size() const { return by_id_.size(); }
  bool empty() const { return by_id_.empty(); }
  // By priority, tenant and age. `each` must not change the queue.
  template <class Each>
  void for_each(Each each) {
    for (auto& [priority, lanes] : levels_) {
      for (auto& [tenant, lane] : lanes) {
        for (auto& [id, sequence] : lane) each(*sequence);
      }
    }
  }

 private:
  using Lane = std::map<RequestId, std::unique_ptr<Sequence>>;  // ids grow, so the first is the oldest
  using Lanes = std::map<int32_t, Lane>;                        // by tenant

  std::map<int32_t, Lanes, std::greater<>> levels_;  // by priority
  std::unordered_map<RequestId, Sequence*> by_id_;
  std::vector<Sequence*> passed_;
};

}  // namespace deepinfer
