#include "host/constraints.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <time.h>

#include "base/file.h"

namespace deepinfer {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A hostile schema costs its limit once, not with each request.
TEST(Constraints, ARefusalIsRemembered) {
  const auto json = read_file(DEEPINFER_SOURCE_DIR "/models/tiny-v41/tokenizer.json");
  ASSERT_TRUE(json);
  const auto tokenizer = Tokenizer::parse(*json, "tokenizer.json");
  ASSERT_TRUE(tokenizer);
  Constraints constraints(*tokenizer);
  std::string branches;
  for (int i = 0; i < 1000; ++i)
    branches += fmt::format(R"({}{{"type":"string","pattern":"a.{{{}}}b.*{}"}})", i ? "," : "", i, i);
  const OutputConstraint wanted{OutputConstraint::Kind::kJson, R"({"oneOf":[)" + branches + "]}"};
  double begin = cpu_seconds();
  const auto first = constraints.of(wanted);
  const double once = cpu_seconds() - begin;
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("#"), std::string::npos) << first.error().message;
  EXPECT_LT(once, 4);
  begin = cpu_seconds();
  const auto second = constraints.of(wanted);
  EXPECT_LT(cpu_seconds() - begin, once / 20);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, first.error().message);
  EXPECT_TRUE(constraints.of({OutputConstraint::Kind::kRegex, ""}));
}

}  // namespace
}  // namespace deepinfer
