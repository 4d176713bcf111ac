#include "lab/eval/sandbox.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/file.h"

namespace deepinfer {
namespace {

// tests/eval_test.py tries what a program must not do; here is what a caller sees.
class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SandboxOptions options;
    options.cpu_seconds = 1;
    options.wall_us = 3'000'000;
    options.cancelled = &cancelled_;
    if (!file_exists(options.python)) GTEST_SKIP() << "no " << options.python;
    auto opened = Sandbox::open(options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    sandbox_ = std::move(*opened);
  }
  std::optional<std::string> run(const std::string& program) {
    auto result = sandbox_->run(program);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result ? *result : std::nullopt;
  }
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<Sandbox> sandbox_;
};

TEST_F(SandboxTest, SaysHowAProgramEnded) {
  EXPECT_FALSE(run("assert sorted([2, 1]) == [1, 2]\nprint('talk')"));
  EXPECT_EQ(run("assert 1 == 2"), "AssertionError");
  EXPECT_EQ(run("1 / 0"), "ZeroDivisionError: division by zero");
  EXPECT_EQ(run("raise SystemExit(3)"), "exit code 3");
  EXPECT_EQ(run("raise SystemExit"), "ended before its tests were through");
  EXPECT_NE(run("import socket; socket.socket()")->find("PermissionError"), std::string::npos);
  EXPECT_NE(run("import time; time.sleep(99)")->find("took more than"), std::string::npos);
}

TEST_F(SandboxTest, SetsHaveOneOrder) {
  const auto order = run("raise ValueError(str(list({'a', 'b', 'c', 'd', 'e'})))");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run("raise ValueError(str(list({'a', 'b', 'c', 'd', 'e'})))"), order);
}

TEST_F(SandboxTest, ManyAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) threads.emplace_back([&, i] { right += run(i % 2 ? "pass" : "boom").has_value() == (i % 2 == 0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
}

TEST_F(SandboxTest, EndsWhenCancelled) {
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    cancelled_ = true;
  });
  const auto result = sandbox_->run("import time; time.sleep(99)");
  later.join();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace deepinfer
