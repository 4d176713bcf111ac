#include "lab/eval/report.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <unistd.h>
#include <filesystem>

#include "base/file.h"
#include "lab/eval/target.h"

namespace deepinfer {
namespace {

// Values of the closed formula in another program (statsmodels proportion_confint, method wilson).
TEST(Wilson, KnownValues) {
  EXPECT_NEAR(wilson(97, 100).low, 0.91548, 1e-5);
  EXPECT_NEAR(wilson(97, 100).high, 0.98975, 1e-5);
  EXPECT_NEAR(wilson(0, 10).high, 0.27753, 1e-5);
  EXPECT_EQ(wilson(0, 10).low, 0);
  EXPECT_EQ(wilson(10, 10).high, 1);
  EXPECT_EQ(wilson(0, 0).low, 0);
  EXPECT_EQ(wilson(0, 0).high, 1);
}

TEST(Wilson, HoldsTheShareAndMirrors) {
  rc::check([] {
    const int64_t count = *rc::gen::inRange<int64_t>(1, 100000), right = *rc::gen::inRange<int64_t>(0, count + 1);
    const WilsonInterval range = wilson(right, count), mirror = wilson(count - right, count);
    const double share = static_cast<double>(right) / static_cast<double>(count);
    RC_ASSERT(range.low <= share + 1e-12 && share <= range.high + 1e-12);
    RC_ASSERT(std::abs(range.low - (1 - mirror.high)) < 1e-9);
  });
}

TEST(Report, RowsAreStable) {
  EvalReport report{.suite = "tasks"};
  report.of("arith") = {.right = 3, .judged = 4, .errors = 1};
  report.of("list") = {.right = 1, .judged = 1, .left_out = 2};
  std::vector<std::string> names;
  const FigureReport figures = report.figures();
  for (const FigureRow& row : figures.rows()) names.push_back(row.name);
  EXPECT_EQ(names[0], "tasks/arith");
  EXPECT_EQ(names[1], "tasks/arith/low");
  EXPECT_EQ(names[14], "tasks/all");
  EXPECT_EQ(names.back(), "tasks/tokens_per_second");
  EXPECT_DOUBLE_EQ(figures.rows()[14].value, 0.8);
  EXPECT_NE(report.table().find("1 without an answer"), std::string::npos);
}

TEST(Thresholds, MissedOnes) {
  EvalReport report{.suite = "tasks"};
  report.of("arith") = {.right = 9, .judged = 10};
  report.of("picture") = {.left_out = 5};
  EXPECT_TRUE(missed({{"arith", 0.9}, {"all", 0.9}, {"elsewhere", 1}}, report).empty());
  EXPECT_EQ(missed({{"arith", 0.91}, {"all", 0.91}}, report).size(), 2u);
  EXPECT_EQ(missed({{"picture", 0.1}}, report).size(), 1u);
}

TEST(RetryPause, GrowsAndObeys) {
  EXPECT_EQ(retry_pause_us(1, 500'000, "", 0, 0), 500'000);
  EXPECT_EQ(retry_pause_us(3, 500'000, "", 0, 0), 2'000'000);
  EXPECT_EQ(retry_pause_us(90, 500'000, "", 0, 0), 30'000'000);
  EXPECT_LT(retry_pause_us(3, 500'000, "", 0, 1023), 2'000'000);
  EXPECT_GT(retry_pause_us(3, 500'000, "", 0, 1023), 1'490'000);
  EXPECT_EQ(retry_pause_us(1, 500'000, "7", 0, 0), 7'000'000);
  EXPECT_EQ(retry_pause_us(1, 500'000, "0", 0, 0), 0);
  EXPECT_EQ(retry_pause_us(1, 500'000, "86400", 0, 0), 300'000'000);
  EXPECT_EQ(retry_pause_us(1, 500'000, "99999999999999999999", 0, 0), 300'000'000);
  EXPECT_EQ(retry_pause_us(1, 500'000, "Thu, 01 Jan 1970 00:01:00 GMT", 20, 0), 40'000'000);
  EXPECT_EQ(retry_pause_us(1, 500'000, "Thu, 01 Jan 1970 00:00:10 GMT", 20, 0), 0);
  EXPECT_EQ(retry_pause_us(1, 500'000, "soon", 20, 0), 500'000);
  EXPECT_EQ(retry_pause_us(1, 500'000, "-5", 20, 0), 500'000);
}

TEST(AnswerOfResponse, AnyJsonGivesAnAnswerOrAnError) {
  for (const char* text : {"null", "[]", "{}", R"({"choices": {}})", R"({"choices": []})", R"({"choices": [1]})",
                           R"({"choices": [{"message": 1}]})", R"({"choices": [{"message": {"tool_calls": [{}]}}]})",
                           R"({"choices": [{"message": {"tool_calls": [{"function": {"name": 1}}]}}]})"}) {
    EXPECT_FALSE(answer_of_response(*Json::parse(text)).ok()) << text;
  }
  const auto answer = answer_of_response(*Json::parse(
      R"({"choices": [{"message": {"content": "a", "tool_calls": null}, "finish_reason": "length"}], "usage": {"prompt_tokens": -3, "completion_tokens": "x"}})"));
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->ended);
  EXPECT_EQ(answer->prompt_tokens, 0);
}

}  // namespace
}  // namespace deepinfer
