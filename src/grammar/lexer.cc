#include "grammar/lexer.h"

#include <algorithm>

namespace deepinfer {

LexState Lexer::start(std::span<const Rx> terminals) {
  std::vector<Pair> pairs;
  for (const Rx terminal : terminals) {
    if (arena_.alive(terminal)) pairs.push_back({terminal, terminal});
  }
  return intern(std::move(pairs));
}

LexState Lexer::intern(std::vector<Pair> pairs) {
  if (pairs.empty()) return kDead;
  std::sort(pairs.begin(), pairs.end(),
            [](const Pair& a, const Pair& b) { return a.terminal != b.terminal ? a.terminal < b.terminal : a.rest < b.rest; });
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  uint64_t hash = pairs.size();
  for (const Pair& pair : pairs) {
    hash = (hash ^ (uint64_t{pair.terminal} << 32 | pair.rest)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
    if (states_[at->second].pairs == pairs) return at->second;
  }
  State state;
  for (const Pair& pair : pairs) {
    if (arena_.nullable(pair.rest)) state.accepts.push_back(pair.terminal);
  }
  state.pairs = std::move(pairs);
  states_.push_back(std::move(state));
  index_.emplace(hash, static_cast<LexState>(states_.size() - 1));
  return static_cast<LexState>(states_.size() - 1);
}

// Splits the bytes into classes that all pairs treat alike; each class leads to one state.
void Lexer::fill(LexState from) {
  std::array<uint16_t, 256> class_of{};
  std::vector<std::vector<Pair>> members(1);
  const std::vector<Pair> pairs = states_[from].pairs;
  for (const Pair& pair : pairs) {
    const std::span<const RegexArena::Edge> found = arena_.edges(pair.rest);
    for (const RegexArena::Edge& edge : std::vector<RegexArena::Edge>(found.begin(), found.end())) {
      if (!arena_.alive(edge.next)) continue;
      std::unordered_map<uint16_t, uint16_t> moved;
      edge.bytes.each([&](uint8_t byte) {
        const auto [entry, added] = moved.try_emplace(class_of[byte], static_cast<uint16_t>(members.size()));
        if (added) {
          std::vector<Pair> more = members[class_of[byte]];
          more.push_back({pair.terminal, edge.next});
          members.push_back(std::move(more));
        }
        class_of[byte] = entry->second;
      });
    }
  }
  std::vector<uint32_t> next(members.size(), 0);
  std::vector<bool> used(members.size(), false);
  for (const uint16_t c : class_of) used[c] = true;
  for (size_t i = 1; i < members.size(); ++i) {
    if (!used[i]) continue;
    const LexState state = intern(std::move(members[i]));
    next[i] = state * 2 + (states_[state].accepts.empty() ? 0 : 1);
  }
  std::array<uint32_t, 256> table;
  bool continues = false;
  for (size_t byte = 0; byte < 256; ++byte) {
    table[byte] = next[class_of[byte]];
    continues |= table[byte] != 0;
  }
  states_[from].continues = continues;
  states_[from].table = static_cast<int32_t>(tables_.size());
  tables_.push_back(table);
}

}  // namespace deepinfer
