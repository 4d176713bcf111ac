// sim/block_cache.h - the pages of one simulated worker: whole blocks, the least recently used goes first.
//
// Of one prompt the last block is the oldest, so a chain loses its end before its start, as in kvcache/prefix_index.h.
// Threads: one.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace deepinfer {

class BlockCache {
 public:
  explicit BlockCache(int64_t capacity) : capacity_(capacity) {}

  // How many leading blocks are here.
  int64_t match(std::span<const uint32_t> blocks) const;
  // All of them are here and newest afterwards, those that fit; appends what came and what went.
  void use(std::span<const uint32_t> blocks, std::vector<uint32_t>& added, std::vector<uint32_t>& removed);

 private:
  int64_t capacity_;
  std::list<uint32_t> order_;  // newest first
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> places_;
};

}  // namespace deepinfer
