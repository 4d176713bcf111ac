#include "sim/block_cache.h"

#include <algorithm>

namespace deepinfer {

int64_t BlockCache::match(std::span<const uint32_t> blocks) const {
  const auto end = std::find_if_not(blocks.begin(), blocks.end(), [&](uint32_t block) { return places_.contains(block); });
  return end - blocks.begin();
}

void BlockCache::use(std::span<const uint32_t> blocks, std::vector<uint32_t>& added, std::vector<uint32_t>& removed) {
  const auto fitting = blocks.first(std::min(blocks.size(), static_cast<size_t>(capacity_)));
  for (size_t i = fitting.size(); i-- > 0;) {
    const auto found = places_.find(fitting[i]);
    if (found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      continue;
    }
    order_.push_front(fitting[i]);
    places_.emplace(fitting[i], order_.begin());
    added.push_back(fitting[i]);
  }
  while (static_cast<int64_t>(order_.size()) > capacity_) {
    removed.push_back(order_.back());
    places_.erase(order_.back());
    order_.pop_back();
  }
}

}  // namespace deepinfer
