#include "lab/eval/records.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace deepinfer {
namespace {

class EvalRecordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "eval_records_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/records.jsonl";
    for (int i = 0; i < 6; ++i) cases_.push_back({.id = std::to_string(i), .kind = "k", .request = i, .check = i});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static EvalOutcome answered(bool right) { return {.verdict = EvalVerdict{right, ""}}; }
  static EvalOutcome failed() { return {.error = io_error("gone")}; }

  const Json header_ = Json::object({{"eval", 1}, {"suite", "tasks"}, {"settings", Json::object({{"seed", 1}})}});
  std::vector<EvalCase> cases_;
  std::string folder_, path_;
};

TEST_F(EvalRecordsTest, ErrorsAreAskedAgainVerdictsAreNot) {
  {
    auto records = EvalRecords::open(path_, header_, cases_);
    ASSERT_TRUE(records.ok()) << records.error().message;
    ASSERT_TRUE(records->append(cases_[0], answered(true)).ok());
    ASSERT_TRUE(records->append(cases_[1], failed()).ok());
    ASSERT_TRUE(records->append(cases_[2], answered(false)).ok());
  }
  const auto records = EvalRecords::open(path_, header_, cases_);
  EXPECT_EQ(records->known(), (std::map<std::string, bool>{{"0", true}, {"2", false}}));
}

TEST_F(EvalRecordsTest, OtherSettingsAndCasesAreNamed) {
  ASSERT_TRUE(EvalRecords::open(path_, header_, cases_)->append(cases_[3], answered(true)).ok());
  Json other = header_;
  other.set("settings", Json::object({{"seed", 2}}));
  EXPECT_NE(EvalRecords::open(path_, other, cases_).error().message.find("seed 1, now 2"), std::string::npos);
  cases_[3].check = "changed";
  EXPECT_NE(EvalRecords::open(path_, header_, cases_).error().message.find(":2: case \"3\""), std::string::npos);
  cases_.erase(cases_.begin() + 3);
  EXPECT_TRUE(EvalRecords::open(path_, header_, cases_)->known().empty());
}

// kill -9 may leave any prefix of the file.
TEST_F(EvalRecordsTest, AnyPrefixIsContinued) {
  {
    auto records = EvalRecords::open(path_, header_, cases_);
    for (const EvalCase& item : cases_) ASSERT_TRUE(records->append(item, answered(true)).ok());
  }
  const std::string whole = *read_file(path_);
  for (size_t size = 0; size <= whole.size(); size += 7) {
    ASSERT_TRUE(write_file(path_, whole.substr(0, size)).ok());
    auto records = EvalRecords::open(path_, header_, cases_);
    ASSERT_TRUE(records.ok()) << size << ": " << records.error().message;
    const auto known = records->known();
    for (const EvalCase& item : cases_) {
      if (known.contains(item.id)) continue;
      ASSERT_TRUE(records->append(item, answered(true)).ok());
    }
    ASSERT_EQ(*read_file(path_), whole) << size;
  }
}

}  // namespace
}  // namespace deepinfer
