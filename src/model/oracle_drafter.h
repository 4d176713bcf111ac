// model/oracle_drafter.h - a drafter that was told the answers, and proposes them rightly or wrongly as ordered.
//
// For `verify determinism` and tests: whatever is proposed, an answer must keep its bytes. Bit k of a pattern says whether the
// draft at place k of a block is right; the patterns are taken by turns, by the place of the block in its sequence. A
// sequence is recognised by the seed of its draws; one that was never learned gets wrong drafts.
// Promise: pure; learn() comes before the first pass.
// Threads: as Drafter.
//
//   OracleDrafter always_right({0x1f});
//   always_right.learn(seed, prompt_tokens, answer);
#pragma once

#include <unordered_map>
#include <vector>

#include "model/drafter.h"

namespace deepinfer {

class OracleDrafter final : public Drafter {
 public:
  // `honest`: the confidence says what is right; otherwise the contrary.
  explicit OracleDrafter(std::vector<uint32_t> patterns, int32_t width = 5, bool honest = true)
      : patterns_(std::move(patterns)), width_(width), honest_(honest) {}

  void learn(uint64_t seed, int64_t prompt_tokens, std::vector<TokenId> answer) {
    answers_[seed] = {prompt_tokens, std::move(answer)};
  }

  int32_t width() const override { return width_; }
  Status note_rows(const StateView&, Workspace&) const override { return {}; }
  Status draft(const DraftBatch& batch, const StateView&, Workspace&, const DraftOutput& out) const override;

 private:
  struct Answer {
    int64_t prompt_tokens = 0;
    std::vector<TokenId> tokens;
  };

  const std::vector<uint32_t> patterns_;
  const int32_t width_;
  const bool honest_;
  std::unordered_map<uint64_t, Answer> answers_;
};

}  // namespace deepinfer
