#include "api/messages/request.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "api/messages/response.h"

namespace deepinfer {
namespace {

ApiOptions options() {
  ApiOptions out;
  out.models = {"m"};
  return out;
}
std::string body(const std::string& rest) { return R"({"model": "m", "max_tokens": 9, )" + rest + "}"; }
std::string error_of(const std::string& text) {
  const auto request = parse_messages_request(text, options());
  return request ? "" : request.error().message;
}

TEST(MessagesRequest, SystemBlocksAndTurnsBecomeAConversation) {
  const auto request = parse_messages_request(
      body(R"("system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "thinking": {"type": "disabled"},
              "messages": [{"role": "user", "content": "q"}])"),
      options());
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_EQ(request->conversation.messages.size(), 2u);
  EXPECT_EQ(request->conversation.messages[0].content.text, "a\n\nb");
  EXPECT_FALSE(request->conversation.thinking);
  EXPECT_EQ(request->max_tokens, 9);
}

TEST(MessagesRequest, ResultsFollowTheirCalls) {
  const std::string call =
      R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, )";
  EXPECT_EQ(error_of(body(call + R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}])")), "");
  EXPECT_NE(error_of(body(call + R"({"role": "user", "content": "x"}])")), "");
  EXPECT_NE(error_of(body(call + R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b"}]}])")), "");
}

TEST(MessagesRequest, AnyBytesGiveARequestOrAnError) {
  const std::string text = body(
      R"("stream": true, "stop_sequences": ["x"], "tools": [{"name": "f", "input_schema": {"type": "object"}, "defer_loading": false}],
         "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
         "data": "AAAA"}}]}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "h"}, {"type": "tool_use", "id": "a",
         "name": "f", "input": {"k": [1]}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
         "content": [{"type": "tool_reference", "tool_name": "f"}]}]}, {"role": "system", "content": [{"type": "tool_addition",
         "tool": {"type": "tool_reference", "name": "f"}}]}])");
  EXPECT_EQ(error_of(text), "");
  rc::check("a damaged body never breaks the parser", [&] {
    std::string damaged = text;
    for (const auto& [place, byte] :
         *rc::gen::container<std::vector<std::pair<uint16_t, char>>>(rc::gen::arbitrary<std::pair<uint16_t, char>>())) {
      damaged[place % damaged.size()] = byte;
    }
    const auto request = parse_messages_request(damaged, options());
    if (!request) RC_ASSERT(!request.error().message.empty());
  });
}

TEST(MessagesErrors, EnvelopeNamesTheKind) {
  EXPECT_EQ(messages_error_body(404, "no").dump(), R"({"type":"error","error":{"type":"not_found_error","message":"no"}})");
  EXPECT_EQ(messages_error_body(400, "no").at("error").at("type").as_string(), "invalid_request_error");
  EXPECT_EQ(messages_error_body(500, "no").at("error").at("type").as_string(), "api_error");
}

TEST(MessagesRequest, AThreadIsRefusedSoThatTheToolRunnerGoesOnWithoutIt) {
  const std::string text = body(R"("messages": [{"role": "user", "content": "q"}], "thread": {"type": "create"})");
  EXPECT_TRUE(parse_messages_request(text, options()));
  ApiOptions open = options();
  open.profile = Profile::kOpen;
  const auto request = parse_messages_request(text, open);
  ASSERT_FALSE(request);
  const Json error = messages_error_body(400, request.error().message);
  EXPECT_EQ(error.at("error").at("details").at("error_code"), Json("thread_unsupported_request"));
  EXPECT_FALSE(messages_error_body(400, "other").at("error").find("details"));
}

TEST(MessagesRequest, ProfileOpenTakesToolsWithATypeAndNamesOfClaude) {
  const std::string text = R"({"model": "claude-opus-4-6", "messages": [{"role": "user", "content": "q"}], "tools": [
      {"type": "custom", "name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]})";
  ApiOptions open = options();
  open.profile = Profile::kOpen;
  EXPECT_FALSE(parse_messages_request(text, open));
  open.messages_takes_claude = true;
  const auto request = parse_messages_request(text, open);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->model, "claude-opus-4-6");
  ASSERT_EQ(request->conversation.tools.size(), 1u);
  EXPECT_EQ(request->conversation.tools[0].name, "f");
  open.profile = Profile::kOfficial;
  EXPECT_EQ(parse_messages_request(text, open).error().message, "tools[0]: server tools are not supported");
}

TEST(MessagesRequest, EarlierWebSearchIsLeftOutWhereItsToolIs) {
  const std::string text = body(R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [
      {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "text", "text": "found"},
      {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]}, {"role": "user", "content": "more"}])");
  ApiOptions open = options();
  EXPECT_FALSE(parse_messages_request(text, open));
  open.profile = Profile::kOpen;
  const auto request = parse_messages_request(text, open);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->conversation.messages[1].content.text, "found");
}

}  // namespace
}  // namespace deepinfer
