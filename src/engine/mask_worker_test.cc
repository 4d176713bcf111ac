#include "engine/mask_worker.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer {
namespace {

// Allows token n alone behind n accepted ones, counted from `first`. Some take long enough to be worth a thread.
class CountingMask final : public TokenMask {
 public:
  explicit CountingMask(TokenId first) : next_(first) {}
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    for (const int64_t start_us = MaskDeadline::now_us(); MaskDeadline::now_us() < start_us + next_ % 4 * 8;) {
    }
    std::fill(words.begin(), words.end(), 0);
    words[static_cast<size_t>(next_) / 32] |= 1u << (next_ % 32);
    return MaskFill::kReady;
  }
  bool accept(TokenId token) override { return token == next_ && ++next_ > 0; }
  void rollback(int32_t num_tokens) override { next_ -= num_tokens; }
  bool complete() const override { return false; }
  TokenId next() const { return next_; }

 private:
  TokenId next_;
};

TEST(MaskWorker, EveryRowGetsTheMaskBehindItsDrafts) {
  constexpr int32_t kVocab = 100;
  std::mt19937 random(7);
  std::vector<Sequence> sequences(9);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto first = static_cast<TokenId>(i * 5);
    sequences[i].mask = std::make_unique<CountingMask>(first);
    for (int32_t k = 0; k < 4; ++k) sequences[i].drafts.tokens[static_cast<size_t>(k)] = first + k;
  }
  MaskWorker worker;
  for (int step = 0; step < 3000; ++step) {
    std::vector<DrawRow> rows;
    bool any = false;
    for (Sequence& sequence : sequences) {
      sequence.masked = random() % 3 != 0;
      const auto drafts = static_cast<int32_t>(random() % 5);
      if (random() % 4 == 0) continue;
      any |= sequence.masked;
      for (int32_t i = 0; i <= drafts; ++i) rows.push_back({&sequence, i});
    }
    worker.begin(rows, kVocab);
    const std::vector<uint32_t>& words = worker.finish();
    ASSERT_EQ(words.size(), any ? rows.size() * 4 : 0);
    for (size_t i = 0; any && i < rows.size(); ++i) {
      const auto token = static_cast<size_t>(rows[i].drafts + (rows[i].sequence - sequences.data()) * 5);
      for (size_t word = 0; word < 4; ++word) {
        const uint32_t allowed = token / 32 == word ? 1u << (token % 32) : 0;
        ASSERT_EQ(words[i * 4 + word], rows[i].sequence->masked ? allowed : ~0u) << "step " << step << " row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
