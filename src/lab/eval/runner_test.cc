#include "lab/eval/runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

namespace deepinfer {
namespace {

// Answers with what the test says; counts who asks at once.
class FakeTarget final : public EvalTarget {
 public:
  explicit FakeTarget(std::function<Result<EvalAnswer>(int64_t number)> answer) : answer_(std::move(answer)) {}
  std::string model() const override { return "fake"; }
  Result<EvalAnswer> ask(const Json& request, const std::atomic<bool>& interrupted) override {
    const int at_once = ++asking_;
    for (int most = most_.load(); at_once > most && !most_.compare_exchange_weak(most, at_once);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --asking_;
    ++asked_;
    if (interrupted.load()) return Error{ErrorCode::kCancelled, "interrupted"};
    return answer_(*request.at("number").to_int64("number"));
  }
  int most() const { return most_.load(); }
  int asked() const { return asked_.load(); }

 private:
  std::function<Result<EvalAnswer>(int64_t)> answer_;
  std::atomic<int> asking_{0}, most_{0}, asked_{0};
};

std::vector<EvalCase> numbered(int64_t count) {
  std::vector<EvalCase> cases;
  for (int64_t i = 0; i < count; ++i) {
    cases.push_back({.id = std::to_string(i),
                     .kind = i % 2 ? "odd" : "even",
                     .request = Json::object({{"number", i}}),
                     .check = Json::object({{"type", "number"}, {"value", i}})});
  }
  return cases;
}

Result<EvalReport> run(const std::vector<EvalCase>& cases, EvalTarget& target, const EvalRunOptions& options,
                       const std::atomic<bool>& interrupted = false) {
  return run_eval(**find_suite("tasks"), cases, target, {}, options, interrupted);
}

EvalAnswer right(int64_t number) { return {.content = std::to_string(number), .completion_tokens = 2}; }

TEST(Runner, AsksEveryCaseOnceWithinTheBound) {
  const auto cases = numbered(200);
  FakeTarget target([](int64_t number) -> Result<EvalAnswer> { return right(number % 4 == 0 ? -1 : number); });
  int64_t last = 0;
  EvalRunOptions options{.concurrency = 7};
  options.progress = [&](const EvalProgress& progress) { EXPECT_EQ(progress.done, ++last); };
  const auto report = run(cases, target, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(target.asked(), 200);
  EXPECT_LE(target.most(), 7);
  EXPECT_EQ(last, 200);
  EXPECT_EQ(report->all().right, 150);
  EXPECT_EQ(report->kinds[0].second.right, 50);
  EXPECT_EQ(report->completion_tokens, 400);
}

TEST(Runner, StopsWhenNoCaseCanBeAnswered) {
  const auto cases = numbered(500);
  FakeTarget refused([](int64_t) -> Result<EvalAnswer> { return Error{ErrorCode::kPermission, "no key"}; });
  auto report = run(cases, refused, {.concurrency = 3});
  EXPECT_EQ(report->stopped->message, "no key");
  EXPECT_LE(refused.asked(), 6);
  FakeTarget gone([](int64_t number) -> Result<EvalAnswer> {
    if (number < 50) return right(number);
    return Error{ErrorCode::kUnavailable, "gone"};
  });
  report = run(cases, gone, {.concurrency = 5});
  EXPECT_TRUE(report->stopped.has_value());
  // Of five that ask at once, four may be under way when the fifth sees that nobody answers.
  EXPECT_GE(report->all().right, 46);
  EXPECT_LE(report->all().errors, 4 + 5 + 4);
}

TEST(Runner, ErrorsOfSingleCasesGoOn) {
  FakeTarget target([](int64_t number) -> Result<EvalAnswer> {
    if (number % 3 == 0) return Error{ErrorCode::kTooLarge, "too long"};
    return right(number);
  });
  const auto report = run(numbered(30), target, {.concurrency = 4});
  EXPECT_FALSE(report->stopped);
  EXPECT_EQ(report->all().errors, 10);
  EXPECT_EQ(report->all().right, 20);
}

TEST(Runner, InterruptedThenContinued) {
  const std::string path = ::testing::TempDir() + "eval_runner_test_" + std::to_string(getpid()) + ".jsonl";
  const auto cases = numbered(100);
  std::atomic<bool> interrupted{false};
  FakeTarget first([&](int64_t number) -> Result<EvalAnswer> {
    if (number == 40) interrupted = true;
    return right(number);
  });
  const auto half = run(cases, first, {.concurrency = 4, .output = path}, interrupted);
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_TRUE(half->interrupted);
  EXPECT_LT(half->all().judged, 100);
  FakeTarget second([](int64_t number) -> Result<EvalAnswer> { return right(number); });
  const auto rest = run(cases, second, {.concurrency = 4, .output = path});
  EXPECT_EQ(rest->kept, half->all().judged);
  EXPECT_EQ(second.asked(), 100 - rest->kept);
  EXPECT_EQ(rest->all().right, 100);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace deepinfer
