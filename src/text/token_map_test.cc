#include "text/token_map.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "text/test_data.h"

namespace deepinfer {
namespace {

TEST(FoldTokenText, FollowsTheSteps) {
  EXPECT_EQ(fold_token_text("Hello"), "hello");
  EXPECT_EQ(fold_token_text(" The"), "the");
  EXPECT_EQ(fold_token_text("É"), "e");
  EXPECT_EQ(fold_token_text("ﬁ"), "fi");
  EXPECT_EQ(fold_token_text("Ａ１"), "a1");
  EXPECT_EQ(fold_token_text("a \t\r\n b"), "a b");
  EXPECT_EQ(fold_token_text("İ"), "i");
  EXPECT_EQ(fold_token_text("が"), "か");  // the voicing mark is a combining mark after decomposition
}

TEST(FoldTokenText, ProtectsALoneSpace) {
  EXPECT_EQ(fold_token_text(" "), " ");
  EXPECT_EQ(fold_token_text("\n\n  "), " ");
  EXPECT_EQ(fold_token_text("\u3000"), " ");
  EXPECT_EQ(fold_token_text("\u0301"), "\u0301");  // folds to nothing: stays
  EXPECT_EQ(fold_token_text("\v"), "\v");
}

// The int32 values of one tensor of a safetensors file.
std::vector<int32_t> read_i32(const std::string& file, std::string_view name) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), 8);
  const Json header = *Json::parse(std::string_view(file).substr(8, header_size));
  const Json& offsets = header.at(name).at("data_offsets");
  const auto begin = static_cast<size_t>(*offsets[0].to_int64("begin"));
  const auto end = static_cast<size_t>(*offsets[1].to_int64("end"));
  std::vector<int32_t> values((end - begin) / 4);
  std::memcpy(values.data(), file.data() + 8 + header_size + begin, end - begin);
  return values;
}

TEST(TokenMap, EqualsTheReferenceOfTinyA) {
  const auto json = test::shared_file(test::kTinyA);
  const auto ops = test::shared_file("golden/model/golden/ops.safetensors");
  if (!json || !ops) GTEST_SKIP() << "left out: ../shared/golden/model is not here";
  const auto tokenizer = Tokenizer::parse(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto map = make_token_map(*tokenizer, 1024);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->num_classes, 661);
  EXPECT_EQ(map->class_of, read_i32(*ops, "engram.token_map"));
}

TEST(TokenMap, EqualsTheReferenceOfTinyV41) {
  const auto json = test::shared_file(test::kTinyV41);
  const auto hash = test::shared_file("models/tiny-v41/engram_hash.json");
  if (!json || !hash) GTEST_SKIP() << "left out: models/tiny-v41 is not here";
  const auto tokenizer = Tokenizer::parse(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const Json expected = *Json::parse(*hash);
  const auto map = make_token_map(*tokenizer, static_cast<int32_t>(expected.at("token_map").size()));
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->num_classes, *expected.at("compressed_vocab_size").to_int64("size"));
  for (size_t id = 0; id < map->class_of.size(); ++id) {
    ASSERT_EQ(map->class_of[id], *expected.at("token_map")[id].to_int64("class")) << "token " << id;
  }
}

TEST(TokenMap, RefusesAModelWithMoreTokens) {
  const auto json = test::shared_file(test::kTinyA);
  if (!json) GTEST_SKIP() << "left out: ../shared/golden/model is not here";
  const auto tokenizer = Tokenizer::parse(*json);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_FALSE(make_token_map(*tokenizer, 1025).ok());
}

}  // namespace
}  // namespace deepinfer
