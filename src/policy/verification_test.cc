#include "policy/verification.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace deepinfer {
namespace {

using Lengths = std::vector<int32_t>;

// Cumulative products of rows of `width` confidences.
std::vector<float> survival(const std::vector<float>& confidences, size_t width) {
  std::vector<float> out = confidences;
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % width != 0) out[i] *= out[i - 1];
  }
  return out;
}

// The worked vectors of speculation.md section 4: R = 2, block of 3.
class WorkedVectors : public testing::Test {
 protected:
  double smooth(int64_t rows) const { return smooth_[static_cast<size_t>(rows - 2)]; }
  double jagged(int64_t rows) const { return jagged_[static_cast<size_t>(rows - 2)]; }
  DraftBlocks blocks(const std::vector<float>& a) const { return {.survival = a, .limits = limits_, .width = 3, .sequences = 2}; }

  const std::vector<double> smooth_ = {100, 96, 78, 77, 76, 60, 59}, jagged_ = {100, 65, 64.8, 64.5, 64, 48, 47};
  const Lengths limits_ = {3, 3};
  const std::vector<float> old_ = survival({0.9f, 0.8f, 0.7f, 0.6f, 0.5f, 0.4f}, 3);
  VerificationScheduler scheduler_;
  Lengths lengths_{0, 0};
};

TEST_F(WorkedVectors, SmoothCostsGiveFourDraftsInBothForms) {
  const auto rate = [&](int64_t rows) { return smooth(rows); };
  scheduler_.sync(blocks(old_), rate, lengths_);
  EXPECT_EQ(lengths_, (Lengths{3, 1}));
  EXPECT_EQ(scheduler_.capacity(blocks(old_), rate), 4);
}

TEST_F(WorkedVectors, JaggedCostsStopTheSynchronousForm) {
  const auto rate = [&](int64_t rows) { return jagged(rows); };
  scheduler_.sync(blocks(old_), rate, lengths_);
  EXPECT_EQ(lengths_, (Lengths{0, 0}));
  EXPECT_EQ(scheduler_.capacity(blocks(old_), rate), 4);
}

TEST_F(WorkedVectors, AsynchronousTakesTheLikeliestOfTheRealDrafts) {
  const auto now = survival({0.5f, 0.5f, 0.5f, 0.95f, 0.9f, 0.9f}, 3);
  scheduler_.admit(blocks(now), 4, lengths_);
  EXPECT_EQ(lengths_, (Lengths{1, 3}));
}

// Every admitted set is a beginning of each block, also where confidences are 1 and all survive alike; the sum is the count.
TEST(Verification, AdmittedDraftsArePrefixesAndCount) {
  std::mt19937 random(5);
  VerificationScheduler scheduler;
  for (int trial = 0; trial < 300; ++trial) {
    const size_t n = 1 + random() % 9;
    std::vector<float> c(n * 5);
    Lengths limits(n), lengths(n);
    for (float& value : c) value = random() % 4 == 0 ? 1.0f : static_cast<float>(random() % 1000) / 1000.0f;
    for (int32_t& limit : limits) limit = static_cast<int32_t>(random() % 6);
    const auto a = survival(c, 5);
    const DraftBlocks blocks{.survival = a, .limits = limits, .width = 5, .sequences = static_cast<int64_t>(n)};
    const int64_t all = std::accumulate(limits.begin(), limits.end(), int64_t{0});
    const int64_t count = static_cast<int64_t>(random() % (5 * n + 2));
    scheduler.admit(blocks, count, lengths);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), std::min(count, all));
    float least_in = 1, most_out = 0;
    for (size_t i = 0; i < n; ++i) {
      ASSERT_LE(lengths[i], limits[i]);
      const size_t length = static_cast<size_t>(lengths[i]);
      if (length > 0) least_in = std::min(least_in, a[i * 5 + length - 1]);
      if (lengths[i] < limits[i]) most_out = std::max(most_out, a[i * 5 + length]);
    }
    EXPECT_GE(least_in, most_out);
  }
}

// ---- non-anticipation (section 5): R = 1, block of 2, tokens A and B, exact by enumeration.

constexpr double kTarget[2] = {0.7, 0.3}, kDraft[2] = {0.5, 0.5};
constexpr double kRate[3] = {1.0, 0.5, 0.45};  // steps per second of 1, 2 and 3 rows

double rate_of(int64_t rows) { return kRate[rows - 1]; }

// Looks at all confidences of the block and takes the best of all lengths: what must never be done. Negative control.
int32_t retrospective(const std::vector<float>& a) {
  int32_t best = 0;
  double tokens = 1, best_theta = rate_of(1);
  for (size_t j = 0; j < a.size(); ++j) {
    tokens += static_cast<double>(a[j]);
    const double theta = tokens * rate_of(static_cast<int64_t>(j) + 2);
    if (theta > best_theta) best_theta = theta, best = static_cast<int32_t>(j) + 1;
  }
  return best;
}

int32_t synchronous(const std::vector<float>& a) {
  VerificationScheduler scheduler;
  Lengths lengths{0};
  const Lengths limits{2};
  scheduler.sync(
      {.survival = a, .limits = limits, .width = 2, .sequences = 1}, [](int64_t rows) { return rate_of(rows); }, lengths);
  return lengths[0];
}

// P(first emitted token = A) when `length_of` sees the confidences; c2 depends on the first draft.
template <class LengthOf>
double probability_of_a(LengthOf length_of, float c2_after_a, float c2_after_b) {
  double total = 0;
  for (int d = 0; d < 2; ++d) {
    const int32_t length = length_of(survival({0.8f, d == 0 ? c2_after_a : c2_after_b}, 2));
    const double accept = std::min(1.0, kTarget[d] / kDraft[d]);
    // On refusal the token comes from max(p_t - p_d, 0), which is all on A here.
    const double a = length == 0 ? kTarget[0] : (d == 0 ? accept + (1 - accept) : 1 - accept);
    total += kDraft[d] * a;
  }
  return total;
}

TEST(NonAnticipation, TheRetrospectiveSchedulerBreaksTheDistribution) {
  EXPECT_NEAR(probability_of_a(retrospective, 0.9f, 0.1f), 0.85, 1e-12);
  EXPECT_NEAR(probability_of_a(retrospective, 0.1f, 0.9f), 0.55, 1e-12);
  EXPECT_EQ(retrospective(survival({0.8f, 0.53f}, 2)), 2);  // c2 = 0.527778 divides
  EXPECT_EQ(retrospective(survival({0.8f, 0.52f}, 2)), 0);
}

TEST(NonAnticipation, EarlyStopAndOldDataKeepIt) {
  EXPECT_NEAR(probability_of_a(synchronous, 0.9f, 0.1f), 0.7, 1e-12);
  EXPECT_NEAR(probability_of_a(synchronous, 0.1f, 0.9f), 0.7, 1e-12);
  EXPECT_EQ(synchronous(survival({0.8f, 0.9f}, 2)), 0);  // theta(2) < theta(1)
  const auto fixed = [](const std::vector<float>&) { return 2; };
  EXPECT_NEAR(probability_of_a(fixed, 0.9f, 0.1f), 0.7, 1e-12);
}

}  // namespace
}  // namespace deepinfer
