// grammar/token_mask.h - which tokens may come next in a constrained answer.
//
// A mask is a matcher over the tokens accepted so far. The engine asks for the allowed set before each draw and reports
// the drawn token; rows of one verification are walked with accept() and taken back with rollback(). A set that takes long is
// worked out piece by piece: fill() leaves off when its deadline has passed and goes on where it was when it is called again.
// Promise: the state is a function of the accepted tokens only.
// Threads: one thread at a time per mask; a deadline may be moved by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <span>

#include "base/clock.h"
#include "core/types.h"

namespace deepinfer {

// How long masks may be worked on.
class MaskDeadline {
 public:
  static int64_t now_us() { return SteadyClock().now_us(); }
  void set(int64_t at_us) { at_us_.store(at_us, std::memory_order_relaxed); }
  void clear() { set(std::numeric_limits<int64_t>::max()); }
  int64_t at_us() const { return at_us_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> at_us_{std::numeric_limits<int64_t>::max()};
};

enum class MaskFill : uint8_t {
  kReady,
  kUnfinished,  // ask again
  kFailed,      // it takes more time or room than there is; the answer cannot go on
};

class TokenMask {
 public:
  // So many tokens can always be taken back.
  static constexpr int32_t kMaxRollback = 32;

  virtual ~TokenMask() = default;
  // When ready: bit (v % 32) of words[v / 32] is set for every token v that may come next, and no other. The deadline may be
  // overrun by some milliseconds, so that each call brings the mask forward.
  virtual MaskFill fill(std::span<uint32_t> words, const MaskDeadline& deadline) const = 0;
  MaskFill fill(std::span<uint32_t> words) const { return fill(words, MaskDeadline()); }
  // The one token that may come next, where the constraint leaves no choice of text and no other text would be tokenized to
  // it; -1 elsewhere. fill() allows nothing else there, so the token may be taken without a draw.
  virtual TokenId forced() const { return -1; }
  // False when the token is not allowed; the state is then unchanged.
  virtual bool accept(TokenId token) = 0;
  // Takes back the last `num_tokens` accepted tokens.
  virtual void rollback(int32_t num_tokens) = 0;
  // The answer may end here.
  virtual bool complete() const = 0;
};

}  // namespace deepinfer
