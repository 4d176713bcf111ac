#include "grammar/lexer.h"

#include <algorithm>

namespace deepinfer {
namespace {

// A partition of the bytes, made finer set by set.
struct ByteClasses {
  std::array<uint16_t, 256> of{};
  size_t count = 1;
  std::vector<ByteSet> known;  // sets that were split by

  void split(const ByteSet& set) {
    if (std::find(known.begin(), known.end(), set) != known.end()) return;
    known.push_back(set);
    std::array<uint16_t, 256> inside{};  // of a class: its new number plus one
    std::array<uint16_t, 256> kept{};    // how many of its bytes stay
    for (size_t byte = 0; byte < 256; ++byte) kept[of[byte]] += set.has(static_cast<uint8_t>(byte)) ? 0 : 1;
    set.each([&](uint8_t byte) {
      const uint16_t old = of[byte];
      if (kept[old] == 0) return;  // as a whole inside
      if (inside[old] == 0) inside[old] = static_cast<uint16_t>(++count);
      of[byte] = static_cast<uint16_t>(inside[old] - 1);
    });
  }
  // A byte of each class.
  std::vector<uint8_t> representatives() const {
    std::vector<uint8_t> out(count);
    for (size_t byte = 0; byte < 256; ++byte) out[of[byte]] = static_cast<uint8_t>(byte);
    return out;
  }
};

}  // namespace

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

// Splits the bytes into classes that all pairs treat alike; each class leads to one state. Linear in the pairs: an object of
// hundreds of properties has as many, most of which read the same byte.
void Lexer::fill(LexState from) {
  edges_.clear();
  for (const Pair& pair : std::vector<Pair>(states_[from].pairs)) {
    for (const RegexArena::Edge& edge : arena_.edges(pair.rest)) edges_.push_back({pair.terminal, edge});
  }
  std::erase_if(edges_, [&](const PairEdge& edge) { return !arena_.alive(edge.edge.next); });
  ByteClasses classes;
  for (const PairEdge& edge : edges_) classes.split(edge.edge.bytes);
  const std::vector<uint8_t> representatives = classes.representatives();
  std::vector<std::vector<Pair>> members(classes.count);
  for (const PairEdge& edge : edges_) {
    for (size_t i = 0; i < members.size(); ++i) {
      if (edge.edge.bytes.has(representatives[i])) members[i].push_back({edge.terminal, edge.edge.next});
    }
  }
  const std::array<uint16_t, 256>& class_of = classes.of;
  std::vector<uint32_t> next(members.size(), 0);
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].empty()) continue;
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
