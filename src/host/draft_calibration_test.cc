#include "host/draft_calibration.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace deepinfer {
namespace {

TEST(DraftCalibration, ComesBackForItsOwnModelOnly) {
  const std::string path = testing::TempDir() + "deepinfer-drafts/a/drafts.json";
  Temperatures fit = kNoTemperatures;
  fit[0] = grid_temperature(3), fit[4] = grid_temperature(80);
  ASSERT_TRUE(write_calibration(path, "model-coupled", fit));
  EXPECT_EQ(read_calibration(path, "model-coupled"), fit);
  EXPECT_EQ(read_calibration(path, "model-rejection"), kNoTemperatures);
}

TEST(DraftCalibration, WhatIsNoCalibrationIsNone) {
  const std::string path = testing::TempDir() + "deepinfer-drafts-damaged.json";
  EXPECT_EQ(read_calibration(path + ".missing", "k"), kNoTemperatures);
  for (const char* text :
       {"", "[]", "{", R"({"key":"k"})", R"({"key":"k","temperatures":[1,2]})", R"({"key":"k","temperatures":[1,1,1,1,1,1,"1"]})",
        R"({"key":"k","temperatures":[1,1,1,1,1,1,1e9]})", R"({"key":1,"temperatures":[1,1,1,1,1,1,2]})"}) {
    ASSERT_TRUE(write_file(path, text));
    EXPECT_EQ(read_calibration(path, "k"), kNoTemperatures) << text;
  }
}

}  // namespace
}  // namespace deepinfer
