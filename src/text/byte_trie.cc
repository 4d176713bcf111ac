#include "text/byte_trie.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace deepinfer {
namespace {

// The first eight bytes as a number that orders like the bytes do.
uint64_t leading_bytes(std::string_view bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), std::min<size_t>(8, bytes.size()));
  return __builtin_bswap64(word);
}

// Keys of 16 bytes decide nearly all comparisons without going to the text.
void sort_by_bytes(HugeVector<ByteTrie::Entry>& entries) {
  struct Keyed {
    uint64_t first, second;
    uint32_t entry;
  };
  HugeVector<Keyed> keyed(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string_view bytes = entries[i].bytes;
    keyed[i] = {leading_bytes(bytes), bytes.size() > 8 ? leading_bytes(bytes.substr(8)) : 0, static_cast<uint32_t>(i)};
  }
  std::sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    if (a.first != b.first) return a.first < b.first;
    if (a.second != b.second) return a.second < b.second;
    return entries[a.entry].bytes < entries[b.entry].bytes;
  });
  HugeVector<ByteTrie::Entry> sorted(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) sorted[i] = entries[keyed[i].entry];
  entries = std::move(sorted);
}

}  // namespace

// Places the children of one node after another, depth first, so that a path's nodes lie near each other.
struct ByteTrie::Builder {
  static constexpr size_t kMaxNodes = size_t{1} << (32 - kLabelBits);

  struct Task {
    std::span<const Entry> entries;  // all longer than `depth`
    size_t depth;
    uint32_t node;  // their common prefix; 0 = root
  };

  Nodes nodes = Nodes(2 * kRootBase);
  std::vector<uint8_t> base_used = std::vector<uint8_t>(2 * kRootBase);
  std::vector<uint32_t> free_nodes;  // candidates for a first child; some may have been taken since
  std::vector<Task> tasks;
  std::vector<uint8_t> labels;
  std::vector<size_t> begins;

  bool is_free(uint32_t node) const { return (nodes[node].base_and_label & kLabelMask) == kNoLabel; }

  bool fits(uint32_t base) const {
    if (base_used[base]) return false;
    for (const uint8_t label : labels) {
      if (!is_free(base ^ label)) return false;
    }
    return true;
  }

  // Looks at the newest free nodes first. A node with many children gives up after a few and takes a fresh block, so
  // building stays linear.
  uint32_t find_base() {
    constexpr size_t kTries = 24;
    size_t tries = 0;
    for (size_t i = free_nodes.size(); i-- > 0 && tries < kTries; ++tries) {
      if (!is_free(free_nodes[i])) {
        free_nodes.erase(free_nodes.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (const uint32_t base = free_nodes[i] ^ labels[0]; fits(base)) {
        return base;
      }
    }
    const auto block = static_cast<uint32_t>(nodes.size());
    nodes.resize(block + 256);
    base_used.resize(block + 256);
    for (uint32_t i = 256; i-- > 0;) free_nodes.push_back(block + i);
    return block;
  }

  uint32_t find_base_of_one(uint8_t label) {
    while (!free_nodes.empty() && !is_free(free_nodes.back())) free_nodes.pop_back();
    if (!free_nodes.empty() && !base_used[free_nodes.back() ^ label]) return free_nodes.back() ^ label;
    labels.assign(1, label);
    return find_base();
  }

  // Half of all nodes lie on the last, unbranched part of one entry.
  void place_tail(const Entry& entry, size_t depth, uint32_t node) {
    for (; depth < entry.bytes.size(); ++depth) {
      const auto label = static_cast<uint8_t>(entry.bytes[depth]);
      const uint32_t base = find_base_of_one(label);
      base_used[base] = 1;
      nodes[node].base_and_label |= base << kLabelBits;
      node = base ^ label;
      nodes[node].base_and_label = label;
    }
    nodes[node].value = entry.value;
  }

  void split_by_label(const Task& task) {
    labels.clear();
    begins.clear();
    for (size_t i = 0; i < task.entries.size(); ++i) {
      const auto label = static_cast<uint8_t>(task.entries[i].bytes[task.depth]);
      if (!labels.empty() && labels.back() == label) continue;
      labels.push_back(label);
      begins.push_back(i);
    }
    begins.push_back(task.entries.size());
  }

  void place(const Task& task) {
    if (task.entries.size() == 1 && task.node != 0) return place_tail(task.entries[0], task.depth, task.node);
    split_by_label(task);
    const uint32_t base = task.node == 0 ? kRootBase : find_base();
    base_used[base] = 1;
    nodes[task.node].base_and_label |= base << kLabelBits;
    for (size_t c = 0; c < labels.size(); ++c) {
      const uint32_t child = base ^ labels[c];
      auto below = task.entries.subspan(begins[c], begins[c + 1] - begins[c]);
      nodes[child].base_and_label = labels[c];
      if (below[0].bytes.size() == task.depth + 1) {
        nodes[child].value = below[0].value;
        below = below.subspan(1);
      }
      if (!below.empty()) tasks.push_back({below, task.depth + 1, child});
    }
  }
};

Result<ByteTrie> ByteTrie::build(HugeVector<Entry>& entries) {
  sort_by_bytes(entries);
  Builder builder;
  if (!entries.empty()) builder.tasks.push_back({entries, 0, 0});
  while (!builder.tasks.empty()) {
    const Builder::Task task = builder.tasks.back();
    builder.tasks.pop_back();
    builder.place(task);
    if (builder.nodes.size() > Builder::kMaxNodes) return too_large("the vocabulary has too many bytes for the token index");
  }
  builder.nodes[0] = {};  // leaves look for children in the first block and must find none
  ByteTrie trie;
  trie.nodes_ = std::move(builder.nodes);
  return trie;
}

}  // namespace deepinfer
