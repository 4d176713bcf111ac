// grammar/token_trie.h - tokens in the order of a depth-first walk of their bytes.
//
// A node's subtree is the run of nodes behind it, so a walk is one loop over an array: on a byte that
// does not fit it jumps to Node::end.
// Threads: const after build.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "grammar/byte_set.h"

namespace deepinfer {

class TokenTrie {
 public:
  struct Entry {
    std::string_view bytes;  // not empty
    TokenId token;
  };
  struct Node {
    TokenId token;        // -1: only a beginning of others
    uint32_t end;         // index behind the subtree
    uint16_t depth : 15;  // of the bytes before this one
    uint16_t large : 1;   // its subtree is worth a look at below()
    uint8_t byte;
  };

  TokenTrie() = default;
  // Of two tokens with the same bytes the first one stays.
  explicit TokenTrie(std::vector<Entry> entries);

  const std::vector<Node>& nodes() const { return nodes_; }
  size_t max_depth() const { return max_depth_; }
  // All bytes that stand below a large node.
  const ByteSet& below(uint32_t node) const { return below_.at(node); }

 private:
  std::vector<Node> nodes_;
  size_t max_depth_ = 0;
  std::unordered_map<uint32_t, ByteSet> below_;
};

}  // namespace deepinfer
