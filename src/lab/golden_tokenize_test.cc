#include "lab/golden_tokenize.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "host/compressed_file.h"
#include "lab/bench_tokenizer.h"

namespace deepinfer {
namespace {

std::string in_tree(const std::string& path) { return std::string(DEEPINFER_SOURCE_DIR) + "/" + path; }

Result<Tokenizer> release_tokenizer() {
  DI_TRY(const std::string json, read_maybe_compressed(in_tree("models/tokenizer/deepseek_v41_tokenizer.json.zst")));
  return Tokenizer::parse(json);
}

TEST(GoldenTokenize, EveryCasePasses) {
  const auto tokenizer = release_tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto lines = read_maybe_compressed(in_tree("tests/golden/recipe/tokenize.jsonl.zst"));
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  const auto counts = run_tokenize_cases(*lines, *tokenizer);
  ASSERT_TRUE(counts.ok()) << counts.error().message;
  EXPECT_GT(counts->passed, 0);
  EXPECT_EQ(counts->failed, 0) << counts->failures.front();
}

TEST(GoldenTokenize, NamesWhatDiffers) {
  const auto tokenizer = release_tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto counts = run_tokenize_cases(R"({"id": "x/1", "op": "encode", "text": "Hello", "ids": [19923, 1]})"
                                         "\n\n"
                                         R"({"id": "x/2", "op": "encode_content", "text": "Hello", "ids": [19923]})",
                                         *tokenizer);
  ASSERT_TRUE(counts.ok()) << counts.error().message;
  EXPECT_EQ(counts->passed, 1);
  ASSERT_EQ(counts->failures.size(), 1u);
  EXPECT_EQ(counts->failures[0], "x/1: id 1 of 1 is missing, expected 1 of 2");
}

TEST(GoldenTokenize, RefusesWhatIsNoCase) {
  const auto tokenizer = release_tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_FALSE(run_tokenize_cases("{\"op\": \"encode\"}", *tokenizer).ok());
  EXPECT_FALSE(run_tokenize_cases("{\"op\": \"shout\", \"ids\": [], \"text\": \"\"}", *tokenizer).ok());
  EXPECT_FALSE(run_tokenize_cases("nothing", *tokenizer).ok());
}

TEST(BenchTokenizer, HasTheRowsPeopleScript) {
  FigureReport report("bench tokenizer");
  const auto status =
      bench_tokenizer({.tokenizer = in_tree("models/tiny-v41/tokenizer.json"), .text_bytes = 20000, .repeats = 1}, report);
  ASSERT_TRUE(status.ok()) << status.error().message;
  bool load = false, growth = false;
  for (const FigureRow& row : report.rows()) {
    EXPECT_GT(row.value, 0) << row.name;
    load |= row.name == "tokenizer/load" && row.unit == "ms";
    growth |= row.name == "tokenizer/repeated/space/growth";
  }
  EXPECT_TRUE(load && growth);
}

}  // namespace
}  // namespace deepinfer
