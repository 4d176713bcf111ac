// Rejection sampling through the product's schedulers and sampler keeps the target's distribution; a scheduler that looks ahead
// does not, and is caught (speculation.md sections 2, 5 and 8). Coupled acceptance has the rate the formula says.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "ops/portable/sample.h"
#include "policy/verification.h"

namespace deepinfer {
namespace {

using Distribution = std::vector<float>;

std::vector<float> logits_of(const Distribution& p) {
  std::vector<float> logits(p.size());
  for (size_t i = 0; i < p.size(); ++i) logits[i] = p[i] > 0 ? std::log(p[i]) : -INFINITY;
  return logits;
}

SampleRow plain_row(uint64_t seed, int64_t position, uint32_t stream) {
  SampleRow row{};
  row.seed = seed, row.position = position, row.stream = stream;
  row.temperature = row.top_p = row.repetition_penalty = 1.0f;
  row.num_logprobs = -1;
  row.draft = -1;
  return row;
}

int32_t sample(const SampleRow& row, const Distribution& p, const float* draft_logits = nullptr) {
  const std::vector<float> logits = logits_of(p);
  std::vector<float> scratch(4 * p.size());
  SampleResult result{};
  SampleParams params{};
  params.logits = logits.data(), params.settings = &row, params.results = &result, params.vocab = static_cast<int32_t>(p.size());
  params.draft_logits = draft_logits;
  sample_row(params, 0, scratch.data());
  return result.token;
}

// One draw from `p` as the engine's sampler makes it.
int32_t draw(const Distribution& p, uint64_t seed, int64_t position, uint32_t stream) {
  return sample(plain_row(seed, position, stream), p);
}

// The token that comes when draft `d` of distribution `draft` is verified by rejection.
int32_t verify(const Distribution& target, const Distribution& draft, int32_t d, uint64_t seed, int64_t position) {
  SampleRow row = plain_row(seed, position, 0);
  row.draft = d;
  const std::vector<float> logits = logits_of(draft);
  return sample(row, target, logits.data());
}

double overlap(const Distribution& a, const Distribution& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::min(double{a[i]}, double{b[i]});
  return sum;
}

// A language whose next token depends on the one before.
struct Language {
  std::function<const Distribution&(int32_t before)> target, draft;
  // Confidence of draft k (from 0) given the drafts before it; may depend on them.
  std::function<double(int k, const std::vector<int32_t>& drafts)> confidence;
  int width = 2;
};

using Scheduler = std::function<int32_t(const std::vector<float>& survival, uint64_t step)>;

// Tokens from `before` on, at least `count`.
std::vector<int32_t> speak(const Language& language, const Scheduler& schedule, int32_t before, size_t count, uint64_t seed) {
  std::vector<int32_t> out;
  for (uint64_t step = 0; out.size() < count; ++step) {
    const auto place = static_cast<int64_t>(out.size());
    std::vector<int32_t> drafts;
    std::vector<float> survival;
    int32_t previous = out.empty() ? before : out.back();
    const int32_t first = previous;
    double product = 1;
    for (int k = 0; k < language.width; ++k) {
      product *= language.confidence(k, drafts);
      survival.push_back(static_cast<float>(product));
      drafts.push_back(draw(language.draft(previous), seed, place + k, 1));
      previous = drafts.back();
    }
    const int32_t length = schedule(survival, step);
    previous = first;
    int32_t k = 0;
    for (; k < length; ++k) {
      const int32_t drafted = drafts[static_cast<size_t>(k)];
      out.push_back(verify(language.target(previous), language.draft(previous), drafted, seed, place + k));
      if (out.back() != drafted) break;
      previous = drafted;
    }
    if (k == length) out.push_back(draw(language.target(previous), seed, place + k, 0));
  }
  return out;
}

struct TwoSpeeds {
  std::vector<double> by_rows;
  double operator()(int64_t rows) const { return by_rows[static_cast<size_t>(rows) - 1]; }
};

int32_t synchronous(const std::vector<float>& survival, const TwoSpeeds& speed) {
  VerificationScheduler scheduler;
  std::vector<int32_t> lengths{0};
  const std::vector<int32_t> limits{static_cast<int32_t>(survival.size())};
  scheduler.sync({.survival = survival, .limits = limits, .width = limits[0], .sequences = 1}, speed, lengths);
  return lengths[0];
}

int32_t retrospective(const std::vector<float>& survival, const TwoSpeeds& speed) {
  int32_t best = 0;
  double tokens = 1, most = speed(1);
  for (size_t j = 0; j < survival.size(); ++j) {
    tokens += double{survival[j]};
    if (tokens * speed(static_cast<int64_t>(j) + 2) > most)
      most = tokens * speed(static_cast<int64_t>(j) + 2), best = static_cast<int32_t>(j) + 1;
  }
  return best;
}

// The counterexample of section 5 with a million first tokens.
TEST(SpeculativeSampling, LookingAheadIsCaughtByAMillionTokens) {
  const Distribution target = {0.7f, 0.3f}, draft = {0.5f, 0.5f};
  const Language language{[&](int32_t) -> const Distribution& { return target; },
                          [&](int32_t) -> const Distribution& { return draft; },
                          [](int k, const std::vector<int32_t>& drafts) { return k == 0           ? 0.8
                                                                                 : drafts[0] == 0 ? 0.9
                                                                                                  : 0.1; }};
  const TwoSpeeds speed{{1.0, 0.5, 0.45}};
  constexpr int kRuns = 1000000;
  const auto share_of_a = [&](const Scheduler& schedule) {
    int64_t count = 0;
    for (int run = 0; run < kRuns; ++run) count += speak(language, schedule, 0, 1, static_cast<uint64_t>(run))[0] == 0;
    return static_cast<double>(count) / kRuns;
  };
  EXPECT_NEAR(share_of_a([&](const auto& a, uint64_t) { return synchronous(a, speed); }), 0.7, 0.002);
  EXPECT_NEAR(share_of_a([](const auto&, uint64_t) { return 2; }), 0.7, 0.002);
  EXPECT_NEAR(share_of_a([&](const auto& a, uint64_t) { return retrospective(a, speed); }), 0.85, 0.002);
}

// Sixteen tokens, each with its own successors; drafts are a blurred copy.
class Toy {
 public:
  Toy() {
    for (uint32_t before = 0; before < kVocab; ++before) {
      Distribution t(kVocab), d(kVocab);
      float sum = 0;
      for (uint32_t i = 0; i < kVocab; ++i) sum += t[i] = std::exp(3 * uniform_of(philox({{before, i, 0, 7}}, {1, 2}).word[0]));
      for (float& p : t) p /= sum;
      for (uint32_t i = 0; i < kVocab; ++i) d[i] = 0.5f * t[(i + before % 3) % kVocab] + 0.5f / kVocab;
      target.push_back(t), draft.push_back(d);
    }
  }
  Language language() const {
    return {[this](int32_t before) -> const Distribution& { return target[static_cast<size_t>(before)]; },
            [this](int32_t before) -> const Distribution& { return draft[static_cast<size_t>(before)]; },
            [this](int k, const std::vector<int32_t>& drafts) {
              const size_t before = k == 0 ? 0 : static_cast<size_t>(drafts.back());
              return overlap(target[before], draft[before]);
            },
            3};
  }
  static constexpr uint32_t kVocab = 16;
  std::vector<Distribution> target, draft;
};

double chi_square(const std::array<double, Toy::kVocab>& counts, const std::array<double, Toy::kVocab>& expected) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  return sum;
}

TEST(SpeculativeSampling, RejectionKeepsTheDistributionUnderEverySchedule) {
  const Toy toy;
  const Language language = toy.language();
  constexpr int kRuns = 200000;
  std::array<double, Toy::kVocab> first{}, second{};
  for (size_t i = 0; i < Toy::kVocab; ++i) {
    first[i] = kRuns * double{toy.target[0][i]};
    for (size_t before = 0; before < Toy::kVocab; ++before)
      second[i] += kRuns * double{toy.target[0][before]} * double{toy.target[before][i]};
  }
  const TwoSpeeds smooth{{1.0, 0.75, 0.6, 0.5}};
  const std::pair<const char*, Scheduler> schedules[] = {
      {"none", [](const auto&, uint64_t) { return 0; }},
      {"all", [](const auto& a, uint64_t) { return static_cast<int32_t>(a.size()); }},
      {"by turns", [](const auto&, uint64_t step) { return static_cast<int32_t>(1 + step % 3); }},
      {"sync", [&](const auto& a, uint64_t) { return synchronous(a, smooth); }},
  };
  for (const auto& [name, schedule] : schedules) {
    std::array<double, Toy::kVocab> seen_first{}, seen_second{};
    for (int run = 0; run < kRuns; ++run) {
      const auto tokens = speak(language, schedule, 0, 2, static_cast<uint64_t>(run));
      ++seen_first[static_cast<size_t>(tokens[0])], ++seen_second[static_cast<size_t>(tokens[1])];
    }
    // 15 degrees of freedom: 37.7 is passed once in a thousand.
    EXPECT_LT(chi_square(seen_first, first), 37.7) << name;
    EXPECT_LT(chi_square(seen_second, second), 37.7) << name;
  }
}

// With temperature, top-k, top-p and min-p the target is what is left of it, and the drafts are drawn from what is left of
// theirs.
TEST(SpeculativeSampling, RejectionKeepsTruncatedDistributions) {
  const Distribution target = {0.4f, 0.25f, 0.15f, 0.1f, 0.06f, 0.04f}, draft = {0.1f, 0.3f, 0.05f, 0.3f, 0.05f, 0.2f};
  constexpr int kRuns = 100000;
  for (int kind = 0; kind < 4; ++kind) {
    SampleRow settings = plain_row(0, 5, 0);
    settings.temperature = 0.7f;
    settings.top_k = kind == 1 ? 3 : 0, settings.top_p = kind == 2 ? 0.8f : 1.0f, settings.min_p = kind == 3 ? 0.2f : 0.0f;
    const std::vector<float> draft_logits = logits_of(draft);
    std::array<double, 6> plain{}, rejected{};
    for (uint64_t run = 0; run < kRuns; ++run) {
      SampleRow row = settings;
      row.seed = run;
      ++plain[static_cast<size_t>(sample(row, target))];
      row.seed = run + kRuns, row.stream = 1;
      row.draft = sample(row, draft), row.stream = 0;
      ++rejected[static_cast<size_t>(sample(row, target, draft_logits.data()))];
    }
    double sum = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(plain[i] == 0, rejected[i] == 0) << kind << " " << i;
      const double both = plain[i] + rejected[i];
      if (both > 0) sum += (plain[i] - rejected[i]) * (plain[i] - rejected[i]) / both;
    }
    EXPECT_LT(sum, 20.5) << kind;  // 5 degrees of freedom: passed once in a thousand
  }
}

// Section 2: expected acceptance of one draft, drawn with the same noise as the target or accepted by chance.
TEST(SpeculativeSampling, AcceptanceRates) {
  const struct {
    Distribution target, draft;
    double rejection, coupled;
  } rows[] = {{{0.7f, 0.3f}, {0.5f, 0.5f}, 0.8, 0.8},
              {{0.5f, 0.3f, 0.2f}, {0.2f, 0.3f, 0.5f}, 0.7, 0.630769},
              {{0.6f, 0.3f, 0.1f}, {0.3f, 0.3f, 0.4f}, 0.7, 0.630769}};
  constexpr int kRuns = 200000;
  for (const auto& row : rows) {
    EXPECT_NEAR(overlap(row.target, row.draft), row.rejection, 1e-6);
    double same = 0, accepted = 0;
    for (int run = 0; run < kRuns; ++run) {
      const auto seed = static_cast<uint64_t>(run);
      same += draw(row.target, seed, 5, 0) == draw(row.draft, seed, 5, 0);
      const int32_t d = draw(row.draft, seed, 5, 1);
      accepted += verify(row.target, row.draft, d, seed, 5) == d;
    }
    EXPECT_NEAR(same / kRuns, row.coupled, 0.005);
    EXPECT_NEAR(accepted / kRuns, row.rejection, 0.005);
    double formula = 0;
    for (size_t i = 0; i < row.target.size(); ++i) {
      double sum = 0;
      for (size_t j = 0; j < row.target.size(); ++j)
        sum += std::max(double{row.target[j]} / double{row.target[i]}, double{row.draft[j]} / double{row.draft[i]});
      formula += 1 / sum;
    }
    EXPECT_NEAR(formula, row.coupled, 1e-6);
  }
}

}  // namespace
}  // namespace deepinfer
