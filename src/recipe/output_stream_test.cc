#include "recipe/output_stream.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "recipe/control_tokens.h"
#include "recipe/sampling.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

using Kind = OutputEvent::Kind;

class OutputStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto json = read_file(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json");
    ASSERT_TRUE(json) << json.error().message;
    auto tokenizer = Tokenizer::parse(*json);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = std::make_unique<Tokenizer>(std::move(*tokenizer));
  }
  static std::string text_of(const std::vector<OutputEvent>& events, Kind kind) {
    std::string text;
    for (const OutputEvent& event : events) text += event.kind == kind ? event.text : "";
    return text;
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(OutputStreamTest, TokenByTokenWithMultiByteCharacters) {
  OutputStream stream(*tokenizer_, {.start = ParseStart::kReasoning});
  std::vector<OutputEvent> events;
  stream.push_ready(5, 2, "fp", events);
  std::vector<TokenId> ids = tokenizer_->encode_content("Müde 你好");
  const size_t reasoning_ids = ids.size();
  ids.push_back(*tokenizer_->added_token(control::kEndThink));
  for (const TokenId id : tokenizer_->encode_content("👩‍💻 ok")) ids.push_back(id);
  for (const TokenId id : ids) ASSERT_TRUE(stream.push_tokens({&id, 1}, {}, events));
  stream.push_finish(AnswerEnd::kLength, events);
  EXPECT_EQ(text_of(events, Kind::kReasoning), "Müde 你好");
  EXPECT_EQ(text_of(events, Kind::kContent), "👩‍💻 ok");
  EXPECT_EQ(events.front().kind, Kind::kStart);
  EXPECT_EQ(events.back().end, AnswerEnd::kLength);
  EXPECT_EQ(stream.usage().completion_tokens, static_cast<int64_t>(ids.size()));
  EXPECT_EQ(stream.usage().reasoning_tokens, static_cast<int64_t>(reasoning_ids));
  EXPECT_EQ(stream.usage().cached_tokens, 2);
}

TEST_F(OutputStreamTest, AStopStringEndsTheAnswerAndTellsWhere) {
  OutputStream stream(*tokenizer_, {.stop = {"STOP"}});
  std::vector<OutputEvent> events;
  const std::vector<TokenId> ids = tokenizer_->encode_content("one STOP two three");
  size_t pushed = 0;
  while (pushed < ids.size() && !stream.finished()) ASSERT_TRUE(stream.push_tokens({&ids[pushed++], 1}, {}, events));
  EXPECT_TRUE(stream.finished());
  EXPECT_EQ(stream.tokens_taken(), static_cast<int64_t>(pushed));
  EXPECT_LT(pushed, ids.size());
  EXPECT_EQ(text_of(events, Kind::kContent), "one ");
  EXPECT_EQ(events.back().kind, Kind::kFinish);
  EXPECT_EQ(events.back().text, "STOP");
  const size_t before = events.size();
  stream.push_finish(AnswerEnd::kStop, events);
  EXPECT_EQ(events.size(), before);
}

TEST_F(OutputStreamTest, UnknownIdsCountAndSayNothing) {
  OutputStream stream(*tokenizer_, {});
  std::vector<OutputEvent> events;
  const TokenId ids[] = {tokenizer_->vocab_size() + 5, tokenizer_->encode_content("a")[0]};
  ASSERT_TRUE(stream.push_tokens(ids, {}, events));
  stream.end_of_input(events);
  EXPECT_EQ(text_of(events, Kind::kContent), "a");
  EXPECT_EQ(stream.usage().completion_tokens, 2);
}

TEST_F(OutputStreamTest, LogprobsMustMatchTheIds) {
  OutputStream stream(*tokenizer_, {});
  std::vector<OutputEvent> events;
  const TokenId ids[] = {1, 2};
  const TokenLogprobs logprobs[] = {{-0.5, {}}};
  EXPECT_FALSE(stream.push_tokens(ids, logprobs, events));
}

TEST(Sampling, ThinkingFixesTheTemperature) {
  EXPECT_EQ(effective_sampling(true, 0.3f, 0.5f).temperature, 1.0f);
  EXPECT_EQ(effective_sampling(true, 0.3f, 0.5f).top_p, 0.95f);
  EXPECT_EQ(effective_sampling(false, 0.3f, 0.5f).temperature, 0.3f);
  EXPECT_EQ(effective_sampling(false, 0.3f, 0.5f).top_p, 1.0f);
}

TEST(Sampling, AnswerLength) {
  Conversation chat;
  chat.thinking = false;
  EXPECT_EQ(*resolve_max_tokens(chat, std::nullopt, 10, 1000000), 8192);
  EXPECT_EQ(*resolve_max_tokens(chat, std::nullopt, 10, 30), 20);
  EXPECT_EQ(*resolve_max_tokens(chat, std::nullopt, 30, 30), 1);
  EXPECT_EQ(resolve_max_tokens(chat, 21, 10, 30).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace deepinfer
