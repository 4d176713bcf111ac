// policy/ranks.h - which rank of an engine owns a new sequence, and what a rank's rows are worth (cluster.md section 4).
//
// A step is over when its slowest rank is, so ranks should have equal work in every step, not only in the mean. A prompt goes to
// the rank with the least attention left in prompts, sum of n * (H + n / 2) for n tokens behind H, then the least tokens; what
// has no prompt to compute, and ties, to the rank that holds the least KV, then the fewest sequences, then the lowest. A sequence
// stays where it is: what was given away by these rules is not corrected by moving it.
// Promise: pure. Threads: any.
//
//   const int32_t rank = choose_rank(loads, prompt_tokens);
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>

namespace deepinfer {

inline constexpr int32_t kMaxRanks = 16;

// Work is counted in parts of a row without context; a row behind so many tokens costs twice as much as one behind none.
inline constexpr int64_t kRowWork = 16384;

// Of `rows` behind `context` tokens.
inline int64_t work_of(int64_t context, int64_t rows) { return rows * (kRowWork + context) + rows * rows / 2; }

struct RankLoad {
  int64_t attention = 0, tokens = 0;  // of prompts that are not computed yet
  int64_t kv = 0;                     // pages in use
  int64_t sequences = 0;

  void add_prompt(int64_t context, int64_t rows) {
    attention += rows * context + rows * rows / 2;
    tokens += rows;
  }
};

inline int32_t choose_rank(std::span<const RankLoad> ranks, int64_t prompt_tokens) {
  const auto less = [&](const RankLoad& a, const RankLoad& b) {
    const auto held = [](const RankLoad& load) { return std::tie(load.kv, load.sequences); };
    if (prompt_tokens <= 1) return held(a) < held(b);
    return std::tie(a.attention, a.tokens, a.kv, a.sequences) < std::tie(b.attention, b.tokens, b.kv, b.sequences);
  };
  return static_cast<int32_t>(std::min_element(ranks.begin(), ranks.end(), less) - ranks.begin());
}

}  // namespace deepinfer
