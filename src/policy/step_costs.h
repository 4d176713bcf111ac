// policy/step_costs.h - what a step of so many rows takes, learnt from the steps themselves (speculation.md section 6).
//
// Row counts fall into buckets: each count up to 16 has its own, above they grow by a fourth. A bucket keeps its last 32 samples
// for 4,096 steps; its cost is their median, which a few disturbed steps do not move. Buckets without samples are read off
// the line between their neighbours, and costs never fall with rows (pool-adjacent-violators, weighted by samples).
// Promise: plain data; add() and at() allocate nothing.
// Threads: one.
//
//   costs.add(6, 1840);            // a step of 6 rows took 1.84 ms
//   double us = costs.at(4);       // 0 while nothing is known
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer {

// Costs by bucket of rows, for people to look at; 0 = nothing is known of it.
inline constexpr int32_t kCostBuckets = 48;  // the last one begins above 16,000 rows
using CostTable = std::array<float, kCostBuckets>;
// The first row count of a bucket.
int64_t first_rows(int32_t bucket);

class StepCosts {
 public:
  void add(int64_t rows, double us);
  // Beyond the ends the slope of the last two buckets goes on; with one bucket known its value holds everywhere.
  double at(int64_t rows) const;
  bool empty() const { return num_points_ == 0; }

  // The fitted points, by growing rows.
  struct Point {
    double rows = 0, us = 0;
    double samples = 0;
    int32_t bucket = 0;
  };
  int32_t num_points() const { return num_points_; }
  const Point& point(int32_t i) const { return points_[static_cast<size_t>(i)]; }
  CostTable table() const;

 private:
  static constexpr int32_t kSamples = 32;
  static constexpr int64_t kLifetime = 4096;  // steps
  struct Bucket {
    std::array<float, kSamples> us{};
    std::array<float, kSamples> rows{};
    std::array<int64_t, kSamples> step{};
    int32_t next = 0, count = 0;
  };
  static int32_t bucket_of(int64_t rows);
  Point summary(const Bucket& bucket) const;
  void fit();

  std::array<Bucket, kCostBuckets> buckets_;
  std::array<Point, kCostBuckets> points_;
  int32_t num_points_ = 0;
  int64_t step_ = 0;
};

// The same by the mean context of the sequences, in classes that grow eightfold: attention reads at most 640 entries a row, but
// the indexer scores all of them. A class without samples answers with its nearest neighbour's, shorter ones first.
// Promise and threads as StepCosts.
class ContextCosts {
 public:
  void add(int64_t rows, int64_t context, double us) { classes_[class_of(context)].add(rows, us); }
  double at(int64_t rows, int64_t context) const;
  bool empty() const;

  static constexpr size_t kClasses = 4;  // below 1k, 8k, 64k tokens, and above
  static int64_t first_context(size_t at) { return at == 0 ? 0 : int64_t{1024} << 3 * (at - 1); }
  CostTable table(size_t at) const { return classes_[at].table(); }

 private:
  static size_t class_of(int64_t context);

  std::array<StepCosts, kClasses> classes_;
};

}  // namespace deepinfer
