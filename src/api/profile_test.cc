#include "api/profile.h"

#include <gtest/gtest.h>

#include <set>

#include "base/file.h"

namespace deepinfer {
namespace {

TEST(Profile, TheDocumentsTableIsTheCodes) {
  const auto page = read_file(std::string(DEEPINFER_SOURCE_DIR) + "/docs/serve.md");
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_NE(page->find(profile_table()), std::string::npos) << "docs/serve.md, Profiles, should hold:\n" << profile_table();
}

TEST(Profile, EveryRuleHasALine) {
  const ProfileRules official = profile_rules(Profile::kOfficial), open = profile_rules(Profile::kOpen);
  std::set<const bool*> told;
  for (const ProfileDifference& line : profile_differences()) {
    told.insert(&(open.*line.rule));
    EXPECT_FALSE(official.*line.rule) << line.what;
    EXPECT_TRUE(open.*line.rule) << line.what;
  }
  EXPECT_EQ(told.size() * sizeof(bool), sizeof(ProfileRules));
}

}  // namespace
}  // namespace deepinfer
