#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace deepinfer {
namespace {

const std::array<std::string, 4> kNames = {"temperature", "top-p", "top-k", "threads"};

TEST(Nearest, DistanceCountsASwapOnce) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("thraeds", "threads"), 1);
}

TEST(Nearest, FindsTheMeantNameOrNothing) {
  EXPECT_EQ(nearest_name("temprature", kNames), "temperature");
  EXPECT_EQ(nearest_name("temp", kNames), "temperature");
  EXPECT_EQ(nearest_name("top_p", kNames), "top-p");
  EXPECT_EQ(nearest_name("verbose", kNames), "");
  EXPECT_EQ(nearest_name(std::string(5000, 'x'), kNames), "");
  EXPECT_EQ(did_you_mean("treads", kNames, "--"), "; did you mean --threads?");
}

}  // namespace
}  // namespace deepinfer
