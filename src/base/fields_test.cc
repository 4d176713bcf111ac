#include "base/fields.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

struct Sample {
  bool stats = false;
  int32_t count = 3;
  uint64_t seed = 0;
  std::optional<float> temperature;
  std::string think = "off";
  void visit(FieldVisitor visit) {
    visit({.name = "stats", .target = &stats, .help = "print speeds"});
    visit({.name = "count", .target = &count, .help = "how many", .min = 1, .max = 10});
    visit({.name = "seed", .target = &seed, .help = "of the noise"});
    visit({.name = "temperature", .target = &temperature, .help = "0 = greedy", .min = 0, .max = 2});
    visit({.name = "think", .target = &think, .help = "thinking", .choices = {"off", "low", "high"}});
  }
};

TEST(Fields, SetAndPrint) {
  Sample sample;
  auto fields = fields_of(sample);
  ASSERT_EQ(fields.size(), 5u);
  EXPECT_EQ(field_text(fields[1]), "3");
  EXPECT_EQ(field_text(fields[3]), "");
  EXPECT_TRUE(set_field(fields[0], "on").ok());
  EXPECT_TRUE(set_field(fields[1], "10").ok());
  EXPECT_TRUE(set_field(fields[2], "18446744073709551615").ok());
  EXPECT_TRUE(set_field(fields[3], "0.5").ok());
  EXPECT_TRUE(set_field(fields[4], "high").ok());
  EXPECT_TRUE(sample.stats);
  EXPECT_EQ(sample.count, 10);
  EXPECT_EQ(sample.seed, 18446744073709551615u);
  EXPECT_EQ(sample.temperature, 0.5f);
  EXPECT_EQ(sample.think, "high");
}

TEST(Fields, WrongTextIsNamedAndChangesNothing) {
  Sample sample;
  auto fields = fields_of(sample);
  for (const char* text : {"", "11", "0", "3x", "1e3", "99999999999999999999", " 3"})
    EXPECT_FALSE(set_field(fields[1], text).ok()) << text;
  EXPECT_FALSE(set_field(fields[2], "-1").ok());
  for (const char* text : {"nan", "inf", "2.1", "-0.5", ""}) EXPECT_FALSE(set_field(fields[3], text).ok()) << text;
  EXPECT_EQ(set_field(fields[1], "11").error().message, "--count is a whole number from 1 to 10, not '11'");
  EXPECT_EQ(set_field(fields[4], "hihg").error().message, "--think is one of off, low, high, not 'hihg'; did you mean high?");
  EXPECT_EQ(sample.count, 3);
  EXPECT_EQ(sample.think, "off");
}

}  // namespace
}  // namespace deepinfer
