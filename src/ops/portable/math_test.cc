#include "ops/portable/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

double ulp_of(double value) {
  const float f = std::abs(static_cast<float>(value));
  return static_cast<double>(std::nextafter(f, INFINITY)) - static_cast<double>(f);
}

// Largest error of f against g over [begin, end], in ulp.
template <class F, class G>
double worst_ulp(float begin, float end, F f, G g) {
  double worst = 0;
  constexpr int kSteps = 400000;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = begin + (end - begin) * static_cast<float>(i) / kSteps;
    const double want = g(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(f(x)) - want) / ulp_of(want));
  }
  return worst;
}

TEST(Math, ExpWithinOneUlp) {
  EXPECT_LE(worst_ulp(-87, 88, exp32, [](double x) { return std::exp(x); }), 1.1);
  EXPECT_LE(worst_ulp(-1, 1, exp32, [](double x) { return std::exp(x); }), 1.1);
  EXPECT_EQ(exp32(0.0f), 1.0f);
  EXPECT_EQ(exp32(-INFINITY), 0.0f);
  EXPECT_EQ(exp32(INFINITY), INFINITY);
  EXPECT_EQ(exp32(-200.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp32(NAN)));
}

TEST(Math, LogWithinOneUlp) {
  EXPECT_LE(worst_ulp(0.01f, 4, log32, [](double x) { return std::log(x); }), 1.0);
  EXPECT_LE(worst_ulp(0.9f, 1.1f, log32, [](double x) { return std::log(x); }), 1.0);
  EXPECT_LE(worst_ulp(1, 1e30f, log32, [](double x) { return std::log(x); }), 1.0);
  EXPECT_LE(worst_ulp(6e-8f, 1e-3f, log32, [](double x) { return std::log(x); }), 1.0);
}

TEST(Math, SoftplusSigmoidErf) {
  EXPECT_LE(worst_ulp(-30, 30, softplus32, [](double x) { return std::log1p(std::exp(x)); }), 3.0);
  EXPECT_LE(worst_ulp(-30, 30, sigmoid32, [](double x) { return 1 / (1 + std::exp(-x)); }), 2.5);
  EXPECT_LE(worst_ulp(-6, 6, erf32, [](double x) { return std::erf(x); }), 2.4);
}

TEST(Math, CosSinForLongContexts) {
  double worst = 0;
  for (int i = 0; i < 1000000; ++i) {
    const float x = static_cast<float>(i) * 1.048575f;
    const CosSin v = cos_sin(x);
    worst = std::max(worst, std::abs(v.cos - std::cos(static_cast<double>(x))) / ulp_of(std::cos(static_cast<double>(x))));
    worst = std::max(worst, std::abs(v.sin - std::sin(static_cast<double>(x))) / ulp_of(std::sin(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 0.501);
}

TEST(Math, PowForSetUp) {
  for (int i = 0; i < 64; ++i) {
    const double want = std::pow(10000.0, -i / 64.0);
    EXPECT_NEAR(pow64(10000.0, -i / 64.0) / want, 1.0, 1e-14);
  }
}

}  // namespace
}  // namespace deepinfer
