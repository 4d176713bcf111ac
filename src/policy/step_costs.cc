#include "policy/step_costs.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

namespace {

constexpr int64_t kExact = 16;  // row counts with a bucket of their own

double median(float* values, int32_t count) {
  const auto middle = values + count / 2;
  std::nth_element(values, middle, values + count);
  if (count % 2 == 1) return *middle;
  return 0.5 * (double{*middle} + double{*std::max_element(values, middle)});
}

}  // namespace

int64_t first_rows(int32_t bucket) {
  if (bucket < kExact) return bucket + 1;
  return static_cast<int64_t>(std::ceil(static_cast<double>(kExact) * std::pow(1.25, bucket - kExact))) + (bucket == kExact);
}

int32_t StepCosts::bucket_of(int64_t rows) {
  if (rows <= kExact) return static_cast<int32_t>(std::max<int64_t>(rows, 1)) - 1;
  const double steps = std::log(static_cast<double>(rows) / kExact) / std::log(1.25);
  return std::min(kCostBuckets - 1, static_cast<int32_t>(kExact) + static_cast<int32_t>(steps));
}

void StepCosts::add(int64_t rows, double us) {
  Bucket& bucket = buckets_[static_cast<size_t>(bucket_of(rows))];
  const auto at = static_cast<size_t>(bucket.next);
  bucket.us[at] = static_cast<float>(us);
  bucket.rows[at] = static_cast<float>(rows);
  bucket.step[at] = ++step_;
  bucket.next = (bucket.next + 1) % kSamples;
  bucket.count = std::min(bucket.count + 1, kSamples);
  fit();
}

StepCosts::Point StepCosts::summary(const Bucket& bucket) const {
  std::array<float, kSamples> live;
  int32_t count = 0;
  double rows = 0;
  for (int32_t i = 0; i < bucket.count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (step_ - bucket.step[at] > kLifetime) continue;
    live[static_cast<size_t>(count++)] = bucket.us[at];
    rows += double{bucket.rows[at]};
  }
  if (count == 0) return {};
  return {rows / count, median(live.data(), count), static_cast<double>(count)};
}

void StepCosts::fit() {
  // Each point with the number of buckets that were pooled into its value.
  std::array<int32_t, kCostBuckets> pooled{};
  std::array<Point, kCostBuckets> pools;
  std::array<double, kCostBuckets> rows{};
  std::array<int32_t, kCostBuckets> buckets{};
  int32_t num_pools = 0;
  num_points_ = 0;
  for (int32_t b = 0; b < kCostBuckets; ++b) {
    const Bucket& bucket = buckets_[static_cast<size_t>(b)];
    const Point point = bucket.count > 0 ? summary(bucket) : Point{};
    if (point.samples == 0) continue;
    buckets[static_cast<size_t>(num_points_)] = b;
    rows[static_cast<size_t>(num_points_++)] = point.rows;
    pools[static_cast<size_t>(num_pools)] = point;
    pooled[static_cast<size_t>(num_pools++)] = 1;
    while (num_pools > 1) {
      Point& before = pools[static_cast<size_t>(num_pools) - 2];
      const Point& last = pools[static_cast<size_t>(num_pools) - 1];
      if (before.us <= last.us) break;
      const double samples = before.samples + last.samples;
      before = {before.rows, (before.us * before.samples + last.us * last.samples) / samples, samples};
      pooled[static_cast<size_t>(num_pools) - 2] += pooled[static_cast<size_t>(num_pools) - 1];
      --num_pools;
    }
  }
  size_t i = 0;
  for (int32_t pool = 0; pool < num_pools; ++pool) {
    const Point& value = pools[static_cast<size_t>(pool)];
    for (int32_t k = 0; k < pooled[static_cast<size_t>(pool)]; ++k, ++i) {
      points_[i] = {rows[i], value.us, value.samples, buckets[i]};
    }
  }
}

CostTable StepCosts::table() const {
  CostTable out{};
  for (int32_t i = 0; i < num_points_; ++i) out[static_cast<size_t>(point(i).bucket)] = static_cast<float>(point(i).us);
  return out;
}

double StepCosts::at(int64_t rows) const {
  if (num_points_ == 0) return 0;
  if (num_points_ == 1) return points_[0].us;
  const double x = static_cast<double>(rows);
  size_t right = 1;
  while (right + 1 < static_cast<size_t>(num_points_) && points_[right].rows < x) ++right;
  const Point &a = points_[right - 1], &b = points_[right];
  const double line = a.us + (x - a.rows) * (b.us - a.us) / (b.rows - a.rows);
  // A line may reach nothing below its first point; a step never does.
  return std::max(line, 0.1 * points_[0].us);
}

size_t ContextCosts::class_of(int64_t context) {
  size_t at = 0;
  for (int64_t limit = 1024; at + 1 < kClasses && context >= limit; limit *= 8) ++at;
  return at;
}

double ContextCosts::at(int64_t rows, int64_t context) const {
  const size_t own = class_of(context);
  for (size_t distance = 0; distance < kClasses; ++distance) {
    if (distance <= own && !classes_[own - distance].empty()) return classes_[own - distance].at(rows);
    if (own + distance < kClasses && !classes_[own + distance].empty()) return classes_[own + distance].at(rows);
  }
  return 0;
}

bool ContextCosts::empty() const {
  return std::all_of(classes_.begin(), classes_.end(), [](const StepCosts& costs) { return costs.empty(); });
}

}  // namespace deepinfer
