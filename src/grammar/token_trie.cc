#include "grammar/token_trie.h"

#include <algorithm>

namespace deepinfer {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.bytes < b.bytes; });
  std::vector<uint32_t> path;  // nodes of the entry before
  std::string_view before;
  for (const Entry& entry : entries) {
    size_t shared = 0;
    while (shared < std::min(before.size(), entry.bytes.size()) && before[shared] == entry.bytes[shared]) ++shared;
    for (; path.size() > shared; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t i = shared; i < entry.bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.token = -1,
                        .end = 0,
                        .depth = static_cast<uint16_t>(i & 0x7FFF),
                        .large = 0,
                        .byte = static_cast<uint8_t>(entry.bytes[i])});
    }
    TokenId& token = nodes_[path.back()].token;
    if (token < 0) token = entry.token;
    max_depth_ = std::max(max_depth_, entry.bytes.size());
    before = entry.bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  constexpr uint32_t kLarge = 12;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].end - i < kLarge) continue;
    nodes_[i].large = 1;
    for (uint32_t at = i + 1; at < nodes_[i].end; ++at) below_[i].add(nodes_[at].byte);
  }
}

}  // namespace deepinfer
