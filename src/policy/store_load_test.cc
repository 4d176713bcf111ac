#include "policy/store_load.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(StoreLoad, PaysWhenReadingIsFasterThanComputing) {
  // 64 tokens at 100 us each are 6,400 us; 57,344 bytes at 57 a microsecond take 1,006 and the fixed part.
  EXPECT_TRUE(load_pays({.bytes = 57'344, .bytes_per_us = 57, .saved_tokens = 64, .us_per_token = 100}));
  EXPECT_FALSE(load_pays({.bytes = 57'344, .bytes_per_us = 57, .saved_tokens = 64, .us_per_token = 30}));
  EXPECT_FALSE(load_pays({.bytes = 57'344, .bytes_per_us = 5, .saved_tokens = 64, .us_per_token = 100}));
  // A long prefix pays at speeds at which a page does not.
  EXPECT_TRUE(load_pays({.bytes = 57'344'000, .bytes_per_us = 57, .saved_tokens = 64'000, .us_per_token = 30}));
}

TEST(StoreLoad, WhatSavesNothingIsNotRead) {
  EXPECT_FALSE(load_pays({.bytes = 1}));
  EXPECT_FALSE(load_pays({.bytes = 1, .bytes_per_us = 1'000, .saved_tokens = 0, .us_per_token = 1'000}));
}

TEST(StoreLoad, WhatWasNeverMeasuredIsTried) {
  EXPECT_TRUE(load_pays({.bytes = 1 << 30, .saved_tokens = 1, .us_per_token = 1}));
  EXPECT_TRUE(load_pays({.bytes = 1 << 30, .bytes_per_us = 1, .saved_tokens = 1}));
}

TEST(StoreLoad, LongerPrefixesMayTakeLonger) {
  const StoreDeadline deadline{.base_us = 100, .per_1k_us = 1'000};
  EXPECT_EQ(deadline.us(0), 100);
  EXPECT_EQ(deadline.us(4096), 4'100);
}

}  // namespace
}  // namespace deepinfer
