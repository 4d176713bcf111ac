// scheduler/prompt_shares.h - how many rows of a step each unfinished prompt gets.
//
// Levels of priority come one after the other. Within a level every tenant gets the same, within a tenant every prompt, and
// what one does not need goes on to those that can use it (max-min fairness). So a prompt of n tokens beside k others has run
// after about (k + 1) * n rows, however long the others are. Behind the levels nobody waits for ever: the oldest prompt gets
// an eighth of the rows at least, and each one is the oldest one day.
// Promise: pure; everything is given away that is wanted; equal shares differ by one row at most. The memory is reused, so a warm
// step allocates nothing; O(prompts * log prompts), 18 us with 256 prompts of 16 tenants.
//
//   shares.clear();
//   for (...) shares.add({.wanted = 300, .priority = 1, .tenant = 4});   // oldest first
//   shares.divide(480);
//   shares.rows(0);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer {

struct PromptWish {
  int64_t wanted = 0;  // rows
  int32_t priority = 0;
  int32_t tenant = 0;
};

class PromptShares {
 public:
  static constexpr int64_t kOldestPart = 8;  // of all rows, for the oldest prompt: one part of so many

  void clear() { wishes_.clear(); }
  void add(const PromptWish& wish) { wishes_.push_back(wish); }
  void divide(int64_t rows);
  // Of the i-th that was added.
  int64_t rows(size_t i) const { return rows_[i]; }

 private:
  struct Item {
    uint64_t group;  // level and tenant, as they come
    int64_t wanted;
    size_t index;
  };
  struct Tenant {
    size_t begin, end;  // in order_
    int64_t wanted;
  };
  void divide_all(int64_t rows);
  size_t level_end(size_t begin);
  int64_t divide_level(int64_t rows);

  std::vector<PromptWish> wishes_;
  std::vector<int64_t> rows_;
  std::vector<Item> order_;      // by level, tenant and length
  std::vector<Tenant> tenants_;  // of one level
};

}  // namespace deepinfer
