// text/byte_trie.h - all tokens by their bytes: finds the longest token at a place in one walk.
//
// A double array: the child of a node by byte b lies at (base ^ b) and carries b as its label, bases are used once, so
// the label alone proves the parent. 8 bytes a node and nothing else is touched; the release's 128,000 tokens make about
// 300,000 nodes. Values are positive for tokens BPE can produce, negative for the others.
// Threads: const after build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "base/result.h"

namespace deepinfer {

class ByteTrie {
 public:
  struct Entry {
    std::string_view bytes;  // not empty, no two alike
    int32_t value;           // not 0
  };
  struct Match {
    int32_t value = 0;  // of the longest entry with a positive value; 0 = none
    size_t length = 0;
    int32_t whole = 0;     // of the entry that is all of the text, of either sign; 0 = none
    size_t looked_at = 0;  // bytes that decided the answer; more than the text has when its end did
  };

  ByteTrie() = default;
  // Sorts `entries`. Fails with kTooLarge beyond eight million nodes.
  static Result<ByteTrie> build(HugeVector<Entry>& entries);

  // The longest entry that begins `text`. REQUIRES: built.
  Match longest(const uint8_t* text, size_t size) const {
    Match match;
    uint32_t base = kRootBase;
    int32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const Node node = nodes_[base ^ text[i]];
      if ((node.base_and_label & kLabelMask) != text[i]) {
        match.looked_at = i + 1;
        return match;
      }
      base = node.base_and_label >> kLabelBits;
      value = node.value;
      if (value > 0) {
        match.value = value;
        match.length = i + 1;
      }
    }
    match.whole = value;
    match.looked_at = size + 1;
    return match;
  }

  size_t num_nodes() const { return nodes_.size(); }

 private:
  static constexpr uint32_t kLabelBits = 9;
  static constexpr uint32_t kLabelMask = (1u << kLabelBits) - 1;
  static constexpr uint32_t kNoLabel = 256;   // an unused node matches no byte
  static constexpr uint32_t kRootBase = 256;  // the block before it stays empty: leaves point there

  struct Node {
    uint32_t base_and_label = kNoLabel;
    int32_t value = 0;
  };
  using Nodes = HugeVector<Node>;
  struct Builder;

  Nodes nodes_;
};

}  // namespace deepinfer
