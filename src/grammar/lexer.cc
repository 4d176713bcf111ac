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
    state.costly |= arena_.is_costly(pair.rest);
  }
  num_pairs_ += pairs.size();
  state.pairs = std::move(pairs);
  states_.push_back(std::move(state));
  index_.emplace(hash, static_cast<LexState>(states_.size() - 1));
  return static_cast<LexState>(states_.size() - 1);
}

LexState Lexer::adopt(const Lexer& from, LexState state, RegexTranslation& translation) {
  std::vector<Pair> pairs = from.pairs(state);
  for (Pair& pair : pairs) pair = {translation(pair.terminal), translation(pair.rest)};
  return intern(std::move(pairs));
}

uint32_t Lexer::step_alone(LexState from, uint8_t byte) {
  std::vector<Pair> pairs = states_[from].pairs;
  for (Pair& pair : pairs) pair.rest = arena_.derive_alone(pair.rest, byte);
  std::erase_if(pairs, [&](const Pair& pair) { return !arena_.alive(pair.rest); });
  const LexState state = intern(std::move(pairs));
  return state * 2 + (states_[state].accepts.empty() ? 0 : 1);
}

// Splits the bytes into classes that all pairs treat alike; each class leads to one state. Linear in the pairs: an object of
// hundreds of properties has as many, most of which read the same byte.
void Lexer::fill(LexState from) {
  edges_.clear();
  for (const Pair& pair : std::vector<Pair>(states_[from].pairs)) {
    for (const RegexArena::Edge& edge : arena_.edges(pair.rest)) edges_.push_back({pair.terminal, edge});
  }
  std::erase_if(edges_, [&](const PairEdge& edge) { return !arena_.alive(edge.edge.next); });
  BytePartition partition;
  for (const PairEdge& edge : edges_) partition.split(edge.edge.bytes);
  std::array<uint32_t, 256> table{};
  bool continues = false;
  std::vector<Pair> members;
  for (const ByteSet& bytes : partition.sets()) {
    members.clear();
    for (const PairEdge& edge : edges_) {
      if (edge.edge.bytes.has(bytes.first())) members.push_back({edge.terminal, edge.edge.next});
    }
    if (members.empty()) continue;
    const LexState state = intern(members);
    const uint32_t next = state * 2 + (states_[state].accepts.empty() ? 0 : 1);
    bytes.each([&](uint8_t byte) { table[byte] = next; });
    continues = true;
  }
  states_[from].continues = continues;
  states_[from].table = static_cast<int32_t>(tables_.size());
  tables_.push_back(table);
}

}  // namespace deepinfer
