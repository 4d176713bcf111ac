#include "lab/figures.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(Figures, JsonHasTheDocumentedShape) {
  FigureReport report("bench decode");
  report.add({.name = "decode/1", .value = 500, .unit = "tokens/s", .limit = 1000.0, .baseline = "other", .ratio = 2.0});
  report.add({.name = "decode/2", .value = 1.5, .unit = "ms"});
  const auto json = Json::parse(report.json("0.1.0"));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->at("command").as_string(), "bench decode");
  EXPECT_EQ(json->at("version").as_string(), "0.1.0");
  EXPECT_TRUE(json->at("machine").at("cpu").is_string());
  ASSERT_EQ(json->at("rows").size(), 2u);
  const Json& first = json->at("rows")[0];
  EXPECT_EQ(*first.at("share").to_double("share"), 0.5);
  EXPECT_EQ(first.at("baseline").as_string(), "other");
  EXPECT_TRUE(json->at("rows")[1].at("limit").is_null());
}

TEST(Figures, TableAlignsAndSaysTheLimit) {
  FigureReport report("bench decode");
  report.add({.name = "long/name", .value = 1234.4, .unit = "tokens/s", .limit = 2468.8});
  report.add({.name = "x", .value = 0.5, .unit = "ms"});
  const std::string table = report.table();
  EXPECT_NE(table.find("1234 tokens/s  (50 % of the limit 2469)"), std::string::npos) << table;
  EXPECT_NE(table.find("x               0.500 ms"), std::string::npos) << table;
}

TEST(Figures, PeakMemoryIsPlausible) { EXPECT_GT(peak_memory_bytes(), 1 << 20); }

}  // namespace
}  // namespace deepinfer
