// grammar/lexer.h - many terminals read side by side: a deterministic automaton, built as far as it is walked.
//
// A state is a set of (terminal, what remains of it). Where the grammar allows several terminals they are read together;
// each state says which of them may end here.
// Promise: a state other than kDead has a continuation or an accept in every pair, so no walk ends in a blind alley.
// Threads: one thread at a time; copies are independent.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/regex.h"

namespace deepinfer {

using LexState = uint32_t;

class Lexer {
 public:
  static constexpr LexState kDead = 0;

  explicit Lexer(const RegexLimits& limits = {}) : arena_(limits) { states_.emplace_back(); }

  RegexArena& arena() { return arena_; }
  const RegexArena& arena() const { return arena_; }

  // The state before the first byte of any of `terminals`.
  LexState start(std::span<const Rx> terminals);
  // Two times the next state, plus one if it accepts.
  uint32_t step(LexState state, uint8_t byte) {
    return states_[state].costly && states_[state].table < 0 ? step_alone(state, byte) : table(state)[byte];
  }
  // Tables take long here and behind it, so single steps should be asked for.
  bool costly(LexState state) const { return states_[state].costly; }
  // Of a costly one: so many of HostName::is_in_a_label() surely fit, and no terminal ends between them.
  size_t free_bytes(LexState state) const {
    const std::vector<Pair>& pairs = states_[state].pairs;
    return pairs.size() == 1 ? arena_.free_bytes(pairs[0].rest) : 0;
  }
  // The same for all bytes; it stays where it is.
  const uint32_t* table(LexState state) {
    if (states_[state].table < 0) fill(state);
    return tables_[static_cast<size_t>(states_[state].table)].data();
  }
  // Terminals that may end in this state.
  const std::vector<Rx>& accepts(LexState state) const { return states_[state].accepts; }
  // Some byte may follow inside a terminal.
  bool continues(LexState state) {
    if (states_[state].table < 0) fill(state);
    return states_[state].continues;
  }
  struct Pair {
    Rx terminal, rest;
    bool operator==(const Pair&) const = default;
  };
  const std::vector<Pair>& pairs(LexState state) const { return states_[state].pairs; }
  size_t num_states() const { return states_.size(); }
  size_t num_tables() const { return tables_.size(); }
  size_t bytes() const {
    return arena_.bytes() + tables_.size() * sizeof(tables_[0]) + num_pairs_ * sizeof(Pair) + states_.size() * kStateBytes;
  }
  // A state of another lexer here.
  LexState adopt(const Lexer& from, LexState state, RegexTranslation& translation);

 private:
  struct State {
    std::vector<Pair> pairs;
    std::vector<Rx> accepts;
    int32_t table = -1;
    bool continues = false, costly = false;
  };
  static constexpr size_t kStateBytes = sizeof(State) + 64;  // with its entry in the index
  LexState intern(std::vector<Pair> pairs);
  void fill(LexState state);
  uint32_t step_alone(LexState state, uint8_t byte);

  struct PairEdge {
    Rx terminal;
    RegexArena::Edge edge;
  };
  RegexArena arena_;
  std::vector<State> states_;
  size_t num_pairs_ = 0;
  std::deque<std::array<uint32_t, 256>> tables_;
  std::unordered_multimap<uint64_t, LexState> index_;
  std::vector<PairEdge> edges_;  // of the state being filled
};

}  // namespace deepinfer
