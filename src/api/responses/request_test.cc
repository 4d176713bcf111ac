#include "api/responses/request.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "api/responses/custom_input.h"

namespace deepinfer {
namespace {

ApiOptions options(Profile profile = Profile::kOfficial) {
  ApiOptions out;
  out.models = {"m"};
  out.profile = profile;
  return out;
}

TEST(ResponsesRequest, CallsAreOneTurnInTheOrderOfTheirIds) {
  const auto request = parse_responses_request(
      R"({"model": "m", "input": [{"role": "user", "content": "q"}, {"type": "function_call", "call_id": "b", "name": "f",
          "arguments": "{}"}, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
          {"type": "function_call_output", "call_id": "b", "output": "rb"}, {"type": "function_call_output", "call_id": "a",
          "output": "ra"}]})",
      options());
  ASSERT_TRUE(request) << request.error().message;
  const auto& messages = request->chat.conversation.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[1].tool_calls[0].id, "a");
  EXPECT_EQ(messages[2].content.text, "ra");
  EXPECT_EQ(messages[3].tool_call_id, "b");
}

TEST(ResponsesRequest, NamespacesAreJoinedAndSplitAgain) {
  const auto request = parse_responses_request(
      R"({"model": "m", "input": "q", "tools": [{"type": "namespace", "name": "fs", "description": "Files.", "tools":
          [{"type": "function", "name": "read", "parameters": {"type": "object"}}]}]})",
      options());
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->chat.conversation.tools[0].name, "fs::read");
  EXPECT_EQ(request->namespaces.at("fs::read"), std::make_pair(std::string("fs"), std::string("read")));
}

TEST(ResponsesRequest, OpenProfileContinuesAStoredResponse) {
  const std::string body = R"({"model": "m", "input": "and then?", "previous_response_id": "r1", "metadata": {"k": "v"}})";
  const auto history = [](const std::string& id) {
    return id == "r1" ? *Json::parse(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])") : Json();
  };
  const auto request = parse_responses_request(body, options(Profile::kOpen), history);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->chat.conversation.messages.size(), 3u);
  EXPECT_EQ(request->items.size(), 3u);
  EXPECT_TRUE(request->store);
  EXPECT_EQ(request->echo.previous_response_id.as_string(), "r1");
  const auto unknown = parse_responses_request(body, options(Profile::kOpen), [](const std::string&) { return Json(); });
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  // The recipe ignores all of it.
  const auto official = parse_responses_request(body, options(), history);
  ASSERT_TRUE(official);
  EXPECT_EQ(official->chat.conversation.messages.size(), 1u);
  EXPECT_FALSE(official->store);
}

TEST(ResponsesRequest, CallsMayBeLimitedInNumberAndName) {
  ApiOptions options;
  options.models = {"m"};
  const std::string body =
      R"({"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "function", "name": "g", "parameters": {"type": "object"}}],)"
      R"( "max_tool_calls": 3, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}})";
  const auto official = parse_responses_request(body, options);
  ASSERT_TRUE(official) << official.error().message;
  EXPECT_EQ(official->chat.conversation.tools.size(), 2u);
  options.profile = Profile::kOpen;
  const auto open = parse_responses_request(body, options);
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_EQ(open->chat.conversation.tools.size(), 1u);
  EXPECT_TRUE(open->chat.conversation.only_listed);
  EXPECT_EQ(open->chat.conversation.max_calls, 3);
  EXPECT_EQ(open->echo.max_tool_calls.dump(), "3");
}

TEST(ResponsesRequest, IncludedLogprobsNeedNoCount) {
  const std::string text = R"({"model": "m", "input": "q", "include": ["x", "message.output_text.logprobs"]})";
  const auto open = parse_responses_request(text, options(Profile::kOpen));
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_TRUE(open->chat.logprobs);
  EXPECT_FALSE(open->chat.top_logprobs);
  EXPECT_FALSE(parse_responses_request(text, options())->chat.logprobs);
  // Both profiles know the same struct.
  EXPECT_EQ(parse_responses_request("[]", options(Profile::kOpen)).error().message,
            parse_responses_request("[]", options()).error().message);
}

TEST(ResponsesRequest, AnyBytesGiveARequestOrAnError) {
  const std::string text =
      R"({"model": "m", "instructions": "i", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
          "tools": [{"type": "custom", "name": "apply_patch"}, {"type": "tool_search", "execution": "client"}], "input": [
          {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r"}]}, {"type": "custom_tool_call", "call_id": "c",
          "name": "apply_patch", "input": "x"}, {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_image",
          "image_url": "data:image/png;base64,AAAA", "detail": "low"}]}, {"type": "tool_search_call", "call_id": "s",
          "arguments": {}}, {"type": "tool_search_output", "call_id": "s", "tools": [{"type": "function", "name": "g"}]}]})";
  const auto whole = parse_responses_request(text, options());
  EXPECT_TRUE(whole) << whole.error().message;
  rc::check("a damaged body never breaks the parser", [&] {
    std::string damaged = text;
    for (const auto& [place, byte] :
         *rc::gen::container<std::vector<std::pair<uint16_t, char>>>(rc::gen::arbitrary<std::pair<uint16_t, char>>())) {
      damaged[place % damaged.size()] = byte;
    }
    for (const Profile profile : {Profile::kOfficial, Profile::kOpen}) {
      const auto request = parse_responses_request(damaged, options(profile));
      if (!request) RC_ASSERT(!request.error().message.empty());
    }
  });
}

std::string all_of(const std::vector<std::string>& pieces) {
  CustomInput input;
  std::string out;
  for (const std::string& piece : pieces) out += input.feed(piece);
  return out + input.end();
}

TEST(CustomInput, UnescapesTheOneText) {
  EXPECT_EQ(all_of({R"({"input": "a\n\"b\\ \u00e9 \ud83d\ude00"})"}), "a\n\"b\\ é 😀");
  EXPECT_EQ(all_of({R"({"patch": "x"})"}), R"({"patch": "x"})");
  EXPECT_EQ(all_of({"{\"inp"}), "{\"inp");
  EXPECT_EQ(all_of({R"({"input": "cut \)"}), "cut ");
}

TEST(CustomInput, AnySplitGivesTheSame) {
  const std::string text = R"({"input": "*** Begin\n+\"x\\y\"\té\ud83d\ude00 end", "more": 1})";
  const std::string whole = all_of({text});
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      ASSERT_EQ(all_of({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), whole) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace deepinfer
