#include "ops/portable/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace deepinfer {
namespace {

TEST(Philox, KnownAnswers) {
  const auto expect = [](PhiloxBlock counter, PhiloxKey key, PhiloxBlock want) {
    const PhiloxBlock got = philox(counter, key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], want.word[i]);
  };
  expect({{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect({{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, GumbelTable) {
  const struct {
    uint64_t seed;
    int64_t position;
    uint32_t stream;
    int32_t token;
    uint32_t word;
    double uniform, gumbel;
  } rows[] = {{0, 0, 0, 0, 0x6627e8d5, 0.39904648065567017, 0.084820278},
              {42, 100, 0, 7, 0x985a4745, 0.595127522945404, 0.655890757},
              {42, 100, 0, 129279, 0x9c5d59f9, 0.6107993721961975, 0.707273015},
              {42, 101, 0, 7, 0xe6c1b45e, 0.9013932347297668, 2.265157582},
              {42, 100, 1, 7, 0x8f198a3c, 0.5589835047721863, 0.541911635},
              {0x7FFFFFFFFFFFFFFFu, 1048575, 0, 5, 0xe7e890b2, 0.9058924317359924, 2.314306433}};
  for (const auto& row : rows) {
    const DrawKey key = {row.seed, row.position, row.stream};
    const uint32_t word = draw_words(key, static_cast<uint32_t>(row.token) >> 2).word[row.token & 3];
    EXPECT_EQ(word, row.word);
    EXPECT_EQ(static_cast<double>(uniform_of(word)), row.uniform);
    EXPECT_NEAR(gumbel(key, row.token), row.gumbel, 1e-6 * std::max(1.0, std::abs(row.gumbel)));
  }
  EXPECT_EQ(choice_seed(42, 0), 42u);
  EXPECT_EQ(choice_seed(42, 1), 1301216224384486550u);
  EXPECT_EQ(choice_seed(42, 2), 8201779539397565660u);
  EXPECT_LT(gumbel_of(~0u), kLargestGumbel);
}

SampleRow plain(float temperature) {
  SampleRow s = {};
  s.temperature = temperature;
  s.top_p = 1.0f;
  s.repetition_penalty = 1.0f;
  s.num_logprobs = -1;
  return s;
}

struct Draw {
  std::vector<float> logits;
  SampleRow settings = plain(1.0f);
  std::vector<int32_t> bias_ids, history;
  std::vector<float> bias_values;
  std::vector<uint32_t> mask;

  SampleResult run() const {
    std::vector<float> scratch(2 * logits.size());
    SampleResult result = {};
    SampleParams p = {};
    p.logits = logits.data();
    p.settings = &settings;
    p.bias_ids = bias_ids.data();
    p.bias_values = bias_values.data();
    p.history = history.data();
    p.masks = mask.empty() ? nullptr : mask.data();
    p.mask_words = static_cast<int64_t>(mask.size());
    p.results = &result;
    p.vocab = static_cast<int32_t>(logits.size());
    sample_row(p, 0, scratch.data());
    return result;
  }
};

TEST(Sample, VectorsOfTheSpecification) {
  const std::vector<int> want[2] = {
      {3, 1, 1, 0, 0, 0, 0, 2, 1, 0, 1, 2, 2, 0, 2, 1, 3, 1, 0, 0, 3, 5, 1, 1, 0, 2, 1, 1, 1, 1, 0, 0},
      {1, 1, 0, 3, 4, 0, 0, 2, 1, 1, 0, 3, 0, 3, 0, 2, 0, 0, 0, 2, 2, 5, 1, 0, 4, 2, 0, 1, 2, 1, 0, 0}};
  Draw draw = {{2, 1.5f, 1, 0.5f, 0, -0.5f, -1, -1.5f}};
  for (uint64_t seed : {42u, 43u}) {
    draw.settings.seed = seed;
    for (int i = 0; i < 32; ++i) {
      draw.settings.position = 100 + i;
      EXPECT_EQ(draw.run().token, want[seed - 42][static_cast<size_t>(i)]) << seed << " " << i;
    }
  }
  const double shares[] = {0.4006, 0.2412, 0.1487, 0.0896, 0.0562, 0.0319, 0.0198, 0.0122};
  std::vector<int> count(8);
  draw.settings.seed = 42;
  for (int i = 0; i < 20000; ++i) {
    draw.settings.position = i;
    ++count[static_cast<size_t>(draw.run().token)];
  }
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(count[i] / 20000.0, shares[i], 0.00006);
}

TEST(Sample, RowsWithoutFiniteLogits) {
  Draw draw = {{NAN, -INFINITY, INFINITY, NAN}};
  for (float t : {0.0f, 1.0f}) {
    draw.settings.temperature = t;
    EXPECT_EQ(draw.run().token, -1);
  }
  draw.logits[1] = -5;
  for (float t : {0.0f, 1.0f}) {
    draw.settings.temperature = t;
    EXPECT_EQ(draw.run().token, 1);
  }
}

TEST(Sample, GreedyTiesPenaltiesBiasMask) {
  Draw draw = {{1, 3, 3, 2}};
  draw.settings.temperature = 0;
  EXPECT_EQ(draw.run().token, 1);
  draw.bias_ids = {3};
  draw.bias_values = {1.5f};
  draw.settings.bias_end = 1;
  EXPECT_EQ(draw.run().token, 3);
  draw.history = {3, 1, 0};
  draw.settings.history_end = 1;
  draw.settings.presence_penalty = 0.6f;
  EXPECT_EQ(draw.run().token, 1);
  draw.settings.presence_penalty = 0;
  draw.settings.repetition_penalty = 2;
  draw.history = {1, 0, 1, 2, 1, 1, 3, 3, 0};
  draw.settings.history_end = 3;
  EXPECT_EQ(draw.run().token, 3);  // 1, 1.5, 1.5, 1.75
  draw.settings.frequency_penalty = 0.25f;
  EXPECT_EQ(draw.run().token, 1);  // 1, 1.5, 1.25, 1
  draw.mask = {0b1001};
  EXPECT_EQ(draw.run().token, 0);
}

// The rule, written plainly: sort everything, cut, draw.
int32_t reference_token(const Draw& draw) {
  const auto& z = draw.logits;
  const SampleRow& s = draw.settings;
  std::vector<int32_t> ids(z.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)]; });
  const float top = z[static_cast<size_t>(ids[0])];
  const auto relative = [&](int32_t id) { return exp32((z[static_cast<size_t>(id)] - top) / s.temperature); };
  const auto weight = [&](int32_t id) { return static_cast<double>(static_cast<uint64_t>(relative(id) * 0x1p40f)); };
  if (s.top_k > 0 && static_cast<size_t>(s.top_k) < ids.size()) ids.resize(static_cast<size_t>(s.top_k));
  if (s.top_p < 1) {
    double total = 0, sum = 0;
    for (int32_t id : ids) total += weight(id);
    size_t kept = 0;
    while (kept < ids.size() && sum < static_cast<double>(s.top_p) * total) sum += weight(ids[kept++]);
    ids.resize(std::max<size_t>(kept, 1));
  }
  int32_t token = -1;
  float best = 0;
  for (int32_t id : ids) {
    if (relative(id) < s.min_p) continue;
    const float value = z[static_cast<size_t>(id)] / s.temperature + gumbel({s.seed, s.position, s.stream}, id);
    if (token < 0 || value > best || (value == best && id < token)) {
      token = id;
      best = value;
    }
  }
  return token;
}

TEST(Sample, TruncationAgreesWithTheRule) {
  Draw draw;
  for (int trial = 0; trial < 600; ++trial) {
    const PhiloxBlock r = philox({{static_cast<uint32_t>(trial), 1, 2, 3}}, {4, 5});
    draw.logits.resize(r.word[0] % 3000 + 5);
    for (size_t i = 0; i < draw.logits.size(); ++i) {
      const float u = uniform_of(philox({{static_cast<uint32_t>(i), static_cast<uint32_t>(trial), 0, 9}}, {1, 1}).word[0]);
      draw.logits[i] = std::round((u - 0.5f) * 40) / (r.word[1] % 2 ? 4.0f : 16.0f);  // many ties
    }
    draw.settings = plain(0.3f + uniform_of(r.word[2]));
    draw.settings.seed = static_cast<uint64_t>(trial);
    draw.settings.position = trial * 7;
    if (trial & 1) draw.settings.top_k = static_cast<int32_t>(r.word[3] % 60 + 1);
    if (trial & 2) draw.settings.top_p = uniform_of(r.word[3]);
    if (trial % 16 == 15) draw.logits.assign(draw.logits.size(), 1.0f);  // nothing but ties
    if (trial & 4) draw.settings.min_p = uniform_of(r.word[1]) * 0.5f;
    EXPECT_EQ(draw.run().token, reference_token(draw)) << trial;
  }
}

TEST(Sample, Logprobs) {
  Draw draw = {{2, 1, 3, 3, -INFINITY}};
  draw.settings.temperature = 0;
  draw.settings.num_logprobs = 3;
  const SampleResult r = draw.run();
  const double norm = std::log(std::exp(2.0) + std::exp(1.0) + 2 * std::exp(3.0));
  EXPECT_EQ(r.token, 2);
  EXPECT_NEAR(r.logprob, 3 - norm, 1e-6);
  ASSERT_EQ(r.num_top, 3);
  EXPECT_EQ(r.top_tokens[0], 2);
  EXPECT_EQ(r.top_tokens[1], 3);
  EXPECT_EQ(r.top_tokens[2], 0);
  EXPECT_NEAR(r.top_logprobs[2], 2 - norm, 1e-6);
}

}  // namespace
}  // namespace deepinfer
