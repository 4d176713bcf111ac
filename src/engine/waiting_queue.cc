#include "engine/waiting_queue.h"

#include <algorithm>
#include <utility>

namespace deepinfer {

void WaitingQueue::push(std::unique_ptr<Sequence> sequence) {
  const RequestId id = sequence->request.id;
  sequence->awaits_prefix = false;
  by_id_.emplace(id, sequence.get());
  levels_[sequence->request.priority][sequence->tenant].emplace(id, std::move(sequence));
}

Sequence* WaitingQueue::find(RequestId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::unique_ptr<Sequence> WaitingQueue::take(const Sequence& sequence) {
  const auto level = levels_.find(sequence.request.priority);
  const auto lane = level->second.find(sequence.tenant);
  auto node = lane->second.extract(sequence.request.id);
  if (lane->second.empty()) level->second.erase(lane);
  if (level->second.empty()) levels_.erase(level);
  by_id_.erase(sequence.request.id);
  std::erase(passed_, node.mapped().get());
  return std::move(node.mapped());
}

void WaitingQueue::begin_round() {
  for (Sequence* sequence : passed_) sequence->awaits_prefix = false;
  passed_.clear();
}

Sequence* WaitingQueue::next(const TokenAccounts& accounts) const {
  if (passed_.size() >= kMostPassed) return nullptr;
  for (const auto& [priority, lanes] : levels_) {
    Sequence* best = nullptr;
    for (const auto& [tenant, lane] : lanes) {
      const auto first = std::find_if(lane.begin(), lane.end(), [](const auto& entry) { return !entry.second->awaits_prefix; });
      if (first == lane.end()) continue;
      Sequence* one = first->second.get();
      const int64_t tokens = accounts.tokens(tenant), least = best ? accounts.tokens(best->tenant) : 0;
      if (!best || tokens < least || (tokens == least && one->request.id < best->request.id)) best = one;
    }
    if (best) return best;
  }
  return nullptr;
}

void WaitingQueue::pass_over(Sequence& sequence) {
  sequence.awaits_prefix = true;
  passed_.push_back(&sequence);
}

}  // namespace deepinfer
