// grammar/token_mask.h - which tokens may come next in a constrained answer.
//
// A mask is a matcher over the tokens accepted so far. The engine asks for the allowed set before each draw and reports
// the drawn token; rows of one verification are walked with accept() and taken back with rollback().
// Promise: the state is a function of the accepted tokens only.
// Threads: one thread at a time per mask.
#pragma once

#include <cstdint>
#include <span>

#include "core/types.h"

namespace deepinfer {

class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Sets bit (v % 32) of words[v / 32] for every token v that may come next and clears the others.
  virtual void fill(std::span<uint32_t> words) const = 0;
  // False when the token is not allowed; the state is then unchanged.
  virtual bool accept(TokenId token) = 0;
  // Takes back the last `num_tokens` accepted tokens.
  virtual void rollback(int32_t num_tokens) = 0;
  // The answer may end here.
  virtual bool complete() const = 0;
};

}  // namespace deepinfer
