// lab/golden_counts.h - what a set of golden cases came to.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace deepinfer {

struct GoldenCounts {
  int passed = 0, failed = 0, left_out = 0;
  std::vector<std::string> failures;  // "ID: what differs", one line each

  void pass() { ++passed; }
  void fail(std::string what) {
    ++failed;
    failures.push_back(std::move(what));
  }
  void leave_out() { ++left_out; }
  void add(const GoldenCounts& other) {
    passed += other.passed, failed += other.failed, left_out += other.left_out;
    failures.insert(failures.end(), other.failures.begin(), other.failures.end());
  }
};

}  // namespace deepinfer
