#include "lab/error_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();

}  // namespace

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

double rms_error(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return kFar;
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) sum += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
  return got.empty() ? 0 : std::sqrt(sum / static_cast<double>(got.size()));
}

double max_error(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return kFar;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(double{got[i]} - want[i]);
    if (!(error <= worst)) worst = std::isnan(error) ? kFar : error;
  }
  return worst;
}

double relative_rms(std::span<const float> got, std::span<const float> want) {
  const double error = rms_error(got, want);
  return error == 0 ? 0 : error / rms(want);
}

double correlation(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return 0;
  const double n = static_cast<double>(a.size());
  double mean_a = 0, mean_b = 0;
  for (size_t i = 0; i < a.size(); ++i) mean_a += a[i] / n, mean_b += b[i] / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

double standard_deviation(std::span<const float> values) {
  if (values.empty()) return 0;
  double mean = 0, sum = 0;
  for (const float v : values) mean += v / static_cast<double>(values.size());
  for (const float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double equal_share(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return 0;
  size_t equal = 0;
  for (size_t i = 0; i < got.size(); ++i) equal += got[i] == want[i];
  return got.empty() ? 1 : static_cast<double>(equal) / static_cast<double>(got.size());
}

}  // namespace deepinfer
