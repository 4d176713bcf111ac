#include "core/step_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <tuple>
#include <vector>

namespace deepinfer {
namespace {

constexpr int32_t kHidden = 8;

bool same(const SequenceRows& a, const SequenceRows& b) {
  return std::tie(a.request, a.slot, a.begin, a.count, a.first_token, a.decoder_begin) ==
             std::tie(b.request, b.slot, b.begin, b.count, b.first_token, b.decoder_begin) &&
         std::tie(a.window_floor, a.encoder_window_floor, a.write_floor, a.prompt_tokens, a.num_logits, a.rank) ==
             std::tie(b.window_floor, b.encoder_window_floor, b.write_floor, b.prompt_tokens, b.num_logits, b.rank);
}

bool same(const StepPlan& a, const StepPlan& b) {
  const auto image = [](const ImageRows& x, const ImageRows& y) {
    return x.token_begin == y.token_begin && x.rows == y.rows &&
           std::equal(x.embeddings, x.embeddings + x.rows * kHidden, y.embeddings);
  };
  return a.tokens == b.tokens && a.truncate_candidate_window == b.truncate_candidate_window &&
         std::ranges::equal(a.sequences, b.sequences, [](const auto& x, const auto& y) { return same(x, y); }) &&
         std::ranges::equal(a.images, b.images, image);
}

// Sequences of three ranks, some with an image in the middle of their rows.
StepPlan random_plan(std::mt19937& random, std::span<const uint16_t> embeddings) {
  const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
  StepPlan plan;
  plan.truncate_candidate_window = below(2) == 0;
  for (int32_t left = below(8); left > 0; --left) {
    SequenceRows rows{
        .request = random(), .slot = below(9), .begin = below(1 << 30), .count = 1 + below(20), .first_token = plan.num_rows()};
    rows.decoder_begin = below(1 << 30), rows.window_floor = below(1 << 30), rows.encoder_window_floor = below(1 << 30);
    rows.write_floor = below(1 << 30), rows.prompt_tokens = below(1 << 30);
    rows.num_logits = below(static_cast<uint32_t>(rows.count) + 1), rows.rank = below(3);
    if (below(3) == 0) {
      const int32_t at = below(static_cast<uint32_t>(rows.count));
      plan.images.push_back(
          {rows.first_token + at, 1 + below(static_cast<uint32_t>(rows.count - at)), embeddings.data() + below(9)});
    }
    for (int32_t i = 0; i < rows.count; ++i) plan.tokens.push_back(below(1000) - 20);
    plan.sequences.push_back(rows);
  }
  return plan;
}

TEST(StepPlan, TravelsAsBytes) {
  std::vector<uint16_t> embeddings(1000);
  for (size_t i = 0; i < embeddings.size(); ++i) embeddings[i] = static_cast<uint16_t>(i * 7919);
  EXPECT_TRUE(rc::check("what is read is what was written; parts and changed bytes are refused or fit", [&](uint32_t seed) {
    std::mt19937 random(seed);
    const StepPlan plan = random_plan(random, embeddings);
    std::vector<uint8_t> bytes = encode_plan(plan, kHidden);
    const auto read = decode_plan(bytes, kHidden);
    RC_ASSERT(read.ok());
    RC_ASSERT(same(*read, plan));
    RC_ASSERT(!decode_plan(std::span(bytes).first(random() % bytes.size()), kHidden).ok());
    bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1 + random() % 255);
    if (const auto other = decode_plan(bytes, kHidden)) {
      for (const SequenceRows& rows : other->sequences)
        RC_ASSERT(rows.first_token >= 0 && rows.count >= 0 && rows.first_token + rows.count <= other->num_rows());
      for (const ImageRows& image : other->images)
        RC_ASSERT(image.token_begin >= 0 && image.rows >= 0 && image.token_begin + image.rows <= other->num_rows());
    }
  }));
}

TEST(StepPlan, RanksTakeItApart) {
  const std::vector<uint16_t> embeddings(1000);
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const StepPlan plan = random_plan(random, embeddings);
    StepPlan part;
    std::array<size_t, 2> taken{};
    for (int32_t rank = 0; rank < 3; ++rank) {
      take_rank(plan, rank, part);
      taken[0] += part.sequences.size(), taken[1] += part.images.size();
      auto whole = plan.sequences.begin();
      for (SequenceRows rows : part.sequences) {
        whole = std::find_if(whole, plan.sequences.end(), [&](const auto& other) { return other.rank == rank; });
        const auto mine = std::span(part.tokens).subspan(static_cast<size_t>(rows.first_token), static_cast<size_t>(rows.count));
        EXPECT_TRUE(std::equal(mine.begin(), mine.end(), plan.tokens.begin() + whole->first_token));
        rows.first_token = whole->first_token;
        EXPECT_TRUE(same(rows, *whole++));
      }
    }
    EXPECT_EQ(taken[0], plan.sequences.size());
    EXPECT_EQ(taken[1], plan.images.size());
  }
}

}  // namespace
}  // namespace deepinfer
