#include "server/batch_output.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace deepinfer {
namespace {

class BatchOutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "batch_output_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/out.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static Json record(const std::string& id) { return Json::object({{"custom_id", id}, {"response", Json()}, {"error", Json()}}); }
  std::string folder_, path_;
};

TEST_F(BatchOutputTest, KeepsRecordsAndRepairsACutOffLine) {
  {
    auto out = BatchOutput::open(path_);
    ASSERT_TRUE(out.ok());
    ASSERT_TRUE(out->append(record("a")).ok());
    ASSERT_TRUE(out->append(record("b")).ok());
  }
  const std::string whole = *read_file(path_);
  for (const char* tail : {"", "{", "{\"custom_id\":\"c\",\"error\":null}", "\xE2\x82"}) {
    ASSERT_TRUE(write_file(path_, whole + tail).ok());
    auto out = BatchOutput::open(path_);
    ASSERT_TRUE(out.ok()) << tail;
    EXPECT_TRUE(out->is_done(1, "a"));
    EXPECT_TRUE(out->is_done(2, "b"));
    EXPECT_FALSE(out->is_done(3, "c"));
    EXPECT_EQ(*read_file(path_), whole);
  }
}

TEST_F(BatchOutputTest, LinesWithoutIdAreKnownByNumber) {
  {
    auto out = BatchOutput::open(path_);
    ASSERT_TRUE(out.ok());
    ASSERT_TRUE(out->append(Json::object({{"custom_id", Json()}, {"error", Json::object({{"line", 7}})}})).ok());
  }
  EXPECT_TRUE(BatchOutput::open(path_)->is_done(7, ""));
  EXPECT_FALSE(BatchOutput::open(path_)->is_done(8, ""));
}

TEST_F(BatchOutputTest, TwoRunsDoNotWriteOneFile) {
  auto first = BatchOutput::open(path_);
  ASSERT_TRUE(first.ok());
  const auto second = BatchOutput::open(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another run is writing it"), std::string::npos);
}

TEST_F(BatchOutputTest, RefusesAnotherKindOfFileAndLeavesIt) {
  ASSERT_TRUE(write_file(path_, "my notes\n").ok());
  auto out = BatchOutput::open(path_);
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("choose another output file"), std::string::npos);
  EXPECT_EQ(*read_file(path_), "my notes\n");
}

TEST_F(BatchOutputTest, UnwritablePathIsNamed) {
  auto out = BatchOutput::open(folder_ + "/missing/out.jsonl");
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("missing/out.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
