// The Chat wire over a real output stream; it stands here because api may not enter text.
#include <gtest/gtest.h>

#include "api/chat/response.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

class ChatAnswerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::parse(*read_file(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = std::make_unique<Tokenizer>(std::move(*tokenizer));
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(ChatAnswerTest, StreamAndBodyTellTheSame) {
  OutputStream stream(*tokenizer_, {.tool_calls = true, .start = ParseStart::kReasoning});
  ChatAnswerWriter writer({.id = "c1", .model = "m", .call_suffix = [](int) { return "x"; }});
  std::vector<OutputEvent> events;
  stream.push_ready(9, 4, std::nullopt, events);
  stream.push_text("Why.</think>Now.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
                   12, events);
  stream.push_finish(AnswerEnd::kStop, events);
  std::vector<Json> chunks;
  for (const OutputEvent& event : events) chunks.push_back(writer.event(event, stream));
  EXPECT_EQ(chunks.front().at("choices")[0].at("delta").dump(), R"({"role":"assistant","content":null,"reasoning_content":""})");
  EXPECT_FALSE(chunks.front().find("usage"));
  EXPECT_EQ(chunks.back().at("choices")[0].at("finish_reason").as_string(), "tool_calls");
  EXPECT_EQ(
      writer.response(stream).dump(),
      R"({"id":"c1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant",)"
      R"("content":"Now.","reasoning_content":"Why.","tool_calls":[{"index":0,"id":"call_00_x","type":"function","function":)"
      R"({"name":"f","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,)"
      R"("completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4},"prompt_cache_hit_tokens":4,)"
      R"("prompt_cache_miss_tokens":5},"system_fingerprint":null})");
}

}  // namespace
}  // namespace deepinfer
