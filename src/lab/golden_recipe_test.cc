#include "lab/golden_recipe.h"

#include <gtest/gtest.h>

#include "host/compressed_file.h"

namespace deepinfer {
namespace {

const std::string kRoot = DEEPINFER_SOURCE_DIR;

class GoldenRecipeTest : public ::testing::TestWithParam<const char*> {};

// Every case of the built wires; the others are said aloud.
TEST_P(GoldenRecipeTest, AllPass) {
  const auto json = read_maybe_compressed(kRoot + "/models/tokenizer/deepseek_v41_tokenizer.json.zst");
  ASSERT_TRUE(json) << json.error().message;
  const auto tokenizer = Tokenizer::parse(*json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto lines = read_maybe_compressed(kRoot + "/tests/golden/recipe/" + GetParam() + ".jsonl.zst");
  ASSERT_TRUE(lines) << lines.error().message;
  const auto result = run_recipe_lines(*lines, *tokenizer, kRoot + "/tests/golden/recipe");
  ASSERT_TRUE(result) << result.error().message;
  for (const std::string& failure : result->counts.failures) ADD_FAILURE() << failure;
  EXPECT_GT(result->counts.passed, 0);
  for (const auto& [reason, count] : result->left_out)
    std::printf("%s: %d cases left out: %s\n", GetParam(), count, reason.c_str());
}

INSTANTIATE_TEST_SUITE_P(Chat, GoldenRecipeTest,
                         ::testing::Values("requests_chat", "requests_messages", "requests_responses", "errors", "limits",
                                           "streams", "images"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GoldenRecipeLines, NoJsonIsAnError) {
  const auto tokenizer = Tokenizer::parse(*read_maybe_compressed(kRoot + "/models/tiny-v41/tokenizer.json"));
  ASSERT_TRUE(tokenizer);
  EXPECT_FALSE(run_recipe_lines("{\"id\": \"a\"\n", *tokenizer));
  const auto left_out = run_recipe_lines(R"({"id": "a", "kind": "x", "wire": "other", "body": {}})", *tokenizer);
  ASSERT_TRUE(left_out);
  EXPECT_EQ(left_out->counts.left_out, 1);
  EXPECT_EQ(left_out->counts.passed, 0);
}

TEST(GoldenRecipeLines, DamagedCasesFailAndNothingBreaks) {
  const auto tokenizer = Tokenizer::parse(*read_maybe_compressed(kRoot + "/models/tiny-v41/tokenizer.json"));
  ASSERT_TRUE(tokenizer);
  for (const char* line : {R"({"wire": "chat"})", R"({"wire": "chat", "body": 3, "expect": []})",
                           R"({"wire": "chat", "body": {}, "chunks": [1, {"kind": "tokens", "ids": [{}], "logprobs": [3, []]}]})",
                           R"({"prompt_tokens": "x"})", R"({"wire": "chat", "expect_compact_per_split": 5})"}) {
    const auto result = run_recipe_lines(line, *tokenizer);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->counts.failed, 1) << line;
  }
}

}  // namespace
}  // namespace deepinfer
