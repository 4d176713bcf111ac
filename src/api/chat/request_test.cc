#include "api/chat/request.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "recipe/render.h"

namespace deepinfer {
namespace {

const std::string kHead = R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])";

ApiOptions options(Profile profile = Profile::kOfficial) {
  ApiOptions out;
  out.models = {"m"};
  out.profile = profile;
  return out;
}

std::string error_of(const std::string& body, const ApiOptions& with = options()) {
  const auto request = parse_chat_request(body, with);
  return request ? "" : request.error().message;
}

ChatRequest accepted(const std::string& body, const ApiOptions& with = options()) {
  auto request = parse_chat_request(body, with);
  EXPECT_TRUE(request) << request.error().message;
  return request ? *std::move(request) : ChatRequest{};
}

TEST(ChatRequest, Defaults) {
  const ChatRequest request = accepted(kHead + "}");
  EXPECT_TRUE(request.conversation.thinking);
  EXPECT_EQ(request.conversation.effort, Effort::kHigh);
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.parsing().start, ParseStart::kReasoning);
  EXPECT_FALSE(request.constraint());
}

TEST(ChatRequest, ThinkingWords) {
  EXPECT_FALSE(accepted(kHead + R"(, "reasoning_effort": "none"})").conversation.thinking);
  EXPECT_EQ(accepted(kHead + R"(, "reasoning_effort": "minimal"})").conversation.effort, Effort::kLow);
  EXPECT_FALSE(accepted(kHead + R"(, "reasoning_effort": "max", "thinking": {"type": "disabled"}})").conversation.thinking);
  EXPECT_TRUE(accepted(kHead + R"(, "reasoning_effort": "none", "thinking": {"type": "adaptive"}})").conversation.thinking);
}

TEST(ChatRequest, TheFirstFaultInTheBodyIsNamed) {
  EXPECT_EQ(error_of(R"({"seed": -1, "messages": 5})"), "invalid request body: invalid value: integer `-1`, expected u64");
  EXPECT_EQ(error_of("{}"), "invalid request body: missing field `messages`");
  EXPECT_EQ(error_of(R"({"messages": [{"role": "user", "content": [{"type": "video"}]}]})"),
            "invalid request body: unknown variant `video`, expected one of `text`, `image_url`, `file`");
}

TEST(ChatRequest, RulesHaveAnOrder) {
  EXPECT_EQ(error_of(R"({"model": "x", "messages": [], "temperature": 9})"),
            "The supported API model names are m, but you passed x.");
  EXPECT_EQ(error_of(R"({"model": "m", "messages": [], "temperature": 9})"), "Empty input messages");
  EXPECT_EQ(error_of(kHead + R"(, "temperature": 9, "n": 3})"), "Invalid n value (currently only n = 1 is supported)");
}

TEST(ChatRequest, PartsJoinAndImagesKeepTheirPlace) {
  const ChatRequest request = accepted(
      R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "<｜image｜>"},
          {"type": "image_url", "image_url": {"url": "https://e.example/a.png", "detail": "low"}}]}]})");
  const RichText& content = request.conversation.messages[0].content;
  EXPECT_EQ(content.text, "<｜image｜>\n\n");
  ASSERT_EQ(content.images.size(), 1u);
  EXPECT_EQ(content.images[0].offset, content.text.size());
  EXPECT_EQ(content.images[0].image.detail, "low");
}

TEST(ChatRequest, ToolPairing) {
  const std::string calls =
      R"({"model": "m", "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f",
          "arguments": "{}"}}]}, )";
  EXPECT_EQ(error_of(calls + R"({"role": "tool", "tool_call_id": "a", "content": "r"}]})"), "");
  EXPECT_NE(error_of(calls + R"({"role": "tool", "tool_call_id": "b", "content": "r"}]})"), "");
  EXPECT_NE(error_of(calls + R"({"role": "user", "content": "r"}]})"), "");
}

TEST(ChatRequest, NamedToolKeepsOnlyThatTool) {
  const ChatRequest request = accepted(
      kHead +
      R"(, "thinking": {"type": "disabled"}, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function",
              "function": {"name": "g"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}})");
  ASSERT_EQ(request.conversation.tools.size(), 1u);
  EXPECT_EQ(request.constraint()->kind, OutputConstraint::Kind::kToolCallRequired);
  EXPECT_TRUE(request.parsing().starts_in_tool_calls);
}

TEST(ChatRequest, OpenProfileIsASuperset) {
  const ApiOptions open = options(Profile::kOpen);
  const std::string developer =
      R"({"model": "m", "messages": [{"role": "developer", "content": "S"}, {"role": "user", "content": "q"}]})";
  EXPECT_NE(error_of(developer), "");
  EXPECT_EQ(accepted(developer, open).conversation.messages[0].role, Role::kSystem);
  EXPECT_EQ(accepted(kHead + R"(, "max_completion_tokens": 7})", open).max_tokens, 7);
  EXPECT_FALSE(accepted(kHead + R"(, "max_completion_tokens": 7})").max_tokens);
  EXPECT_EQ(accepted(kHead + R"(, "temperature": 0.5})", open).sampling.temperature, 0.5f);
  EXPECT_EQ(accepted(kHead + R"(, "n": 4})", open).num_answers, 4);
  EXPECT_EQ(accepted(kHead + R"(, "logit_bias": {"12": -5}})", open).logit_bias.size(), 1u);
  EXPECT_NE(error_of(kHead + R"(, "logit_bias": {"x": 1}})", open), "");
  EXPECT_TRUE(accepted(kHead + R"(, "logit_bias": {"x": 1}})").logit_bias.empty());
  const std::string grammar = R"(, "response_format": {"type": "grammar", "grammar": "root ::= \"a\""}})";
  EXPECT_NE(error_of(kHead + grammar), "");
  EXPECT_EQ(accepted(kHead + grammar, open).grammar, "root ::= \"a\"");
  EXPECT_NE(error_of(kHead + R"(, "response_format": {"type": "grammar", "grammar": ""}})", open), "");
  EXPECT_EQ(accepted(kHead + R"(, "top_k": 4})", open).foreign.top_k, 4);
  EXPECT_EQ(accepted(kHead + R"(, "top_k": 4})").foreign.top_k, 0);
  EXPECT_FALSE(accepted(kHead + R"(, "chat_template_kwargs": {"enable_thinking": false}})", open).conversation.thinking);
  EXPECT_TRUE(accepted(kHead + R"(, "thinking": {"type": "enabled"}, "enable_thinking": false})", open).conversation.thinking);
  const std::string required = R"(, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"})";
  EXPECT_NE(error_of(kHead + required), "");
  EXPECT_TRUE(render_prompt(accepted(kHead + required, open).conversation).text().ends_with("<think>"));
}

TEST(ChatRequest, CallsMayBeLimitedInNumberAndName) {
  const std::string tools =
      kHead + R"(, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}])";
  const std::string one = R"(, "parallel_tool_calls": false)";
  const auto allow = [](const std::string& name) {
    return R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": ")" +
           name + R"("}}]}})";
  };
  EXPECT_EQ(accepted(tools + one + "}").conversation.max_calls, 0) << "official ignores it";
  EXPECT_NE(error_of(tools + allow("g") + "}"), "");
  const ApiOptions open = options(Profile::kOpen);
  EXPECT_EQ(accepted(tools + one + "}", open).conversation.max_calls, 1);
  EXPECT_EQ(accepted(tools + R"(, "parallel_tool_calls": true})", open).conversation.max_calls, 0);
  const Conversation chat = accepted(tools + allow("g") + "}", open).conversation;
  ASSERT_EQ(chat.tools.size(), 1u);
  EXPECT_EQ(chat.tools[0].name, "g");
  EXPECT_TRUE(chat.only_listed);
  EXPECT_EQ(chat.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(error_of(tools + allow("h") + "}", open),
            "Invalid value for 'tool_choice': no tool named 'h' was specified in 'tools'.");
}

// Nested models of the OpenAI client: the prompt shows the recipe's normal form, the answer is held to all of the schema.
TEST(ChatRequest, StrictSchemasAreEnforcedWhole) {
  const std::string schema =
      R"({"type": "object", "$defs": {"P": {"type": "object", "properties": {"n": {"type": "integer"}}}},)"
      R"( "properties": {"p": {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}, "s": {"type": "string", "minLength": 2}}})";
  const std::string body =
      kHead + R"(, "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": )" + schema + "}}]}";
  EXPECT_NE(error_of(body), "") << "official refuses a $ref among anyOf";
  const ToolDefinition tool = accepted(body, options(Profile::kOpen)).conversation.tools.at(0);
  EXPECT_EQ(tool.parameters->dump(),
            R"({"type":"object","properties":{"p":{"anyOf":[{"$ref":"#/$defs/P"},{"type":"null"}]},"s":{"type":"string"}},)"
            R"("additionalProperties":false,"required":["p","s"]})");
  ASSERT_TRUE(tool.enforced);
  EXPECT_EQ(tool.enforced->at("$defs").at("P").dump(),
            R"({"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false,"required":["n"]})");
  EXPECT_EQ(tool.enforced->at("properties").at("s").dump(), R"({"type":"string","minLength":2})");
  EXPECT_EQ(tool.enforced->at("required").dump(), R"(["p","s"])");
}

// What SDKs write of models with dates, tagged unions and tuples.
TEST(ChatRequest, StrictSchemasMayGoBeyondTheStrictForm) {
  const std::string schema =
      R"({"type":"object","properties":{"at":{"type":"string","format":"date-time"},"pet":{"oneOf":[{"type":"object",)"
      R"("properties":{"lives":{"type":"integer"}}},{"type":"null"}]},"pos":{"type":"array","prefixItems":[{"type":"number"}]}}})";
  const std::string format =
      kHead + R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": )" + schema +
      "}}}";
  const std::string tool =
      kHead + R"(, "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": )" + schema + "}}]}";
  for (const std::string& body : {format, tool}) EXPECT_NE(error_of(body), "");
  const ResponseFormat answer = accepted(format, options(Profile::kOpen)).conversation.format;
  EXPECT_EQ(answer.constraint_schema.dump(), Json::parse(schema)->dump()) << "shown as it is written";
  EXPECT_EQ(answer.enforced.at("required").dump(), R"(["at","pet","pos"])");
  EXPECT_EQ(answer.enforced.at("properties").at("pet").at("oneOf").items()[0].at("required").dump(), R"(["lives"])");
  const ToolDefinition definition = accepted(tool, options(Profile::kOpen)).conversation.tools.at(0);
  EXPECT_EQ(definition.parameters->dump(), Json::parse(schema)->dump());
  EXPECT_EQ(definition.enforced->at("additionalProperties").dump(), "false");
  EXPECT_NE(
      error_of(
          kHead +
              R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": {"type": 5}}}})",
          options(Profile::kOpen)),
      "");
}

// The recipe refuses them; the public service takes them, and so does `open`.
TEST(ChatRequest, StrictToolsStandBesideOthersAndAFormat) {
  const auto tool = [](const char* name, const char* strict) {
    return std::string(R"({"type": "function", "function": {"name": ")") + name + R"(", "strict": )" + strict +
           R"(, "parameters": {"type": "object", "properties": {}}}})";
  };
  const std::string mixed = kHead + R"(, "tools": [)" + tool("f", "true") + ", " + tool("g", "false") + "]}";
  const std::string formed = kHead + R"(, "tools": [)" + tool("f", "true") +
                             R"(], "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}})";
  for (const std::string& body : {mixed, formed}) EXPECT_NE(error_of(body), "") << body;
  EXPECT_EQ(accepted(mixed, options(Profile::kOpen)).conversation.tools.size(), 2u);
  const Conversation chat = accepted(formed, options(Profile::kOpen)).conversation;
  EXPECT_EQ(chat.format.kind, ResponseFormat::Kind::kJsonSchema);
  EXPECT_TRUE(chat.tools.at(0).strict.value_or(false));
}

TEST(ChatRequest, OnlyProfileOpenLeavesSamplingToTheCheckpoint) {
  const ChatRequest official = accepted(kHead + "}"), open = accepted(kHead + "}", options(Profile::kOpen));
  EXPECT_TRUE(official.gives_temperature && official.gives_top_p);
  EXPECT_EQ(official.sampling.temperature, 1.0f);
  EXPECT_EQ(official.sampling.top_p, 1.0f);
  EXPECT_FALSE(open.gives_temperature || open.gives_top_p);
}

TEST(ChatRequest, AnyBytesGiveARequestOrAnError) {
  const std::string body =
      kHead +
      R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": true}}],
      "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}, "stop": ["a"], "seed": 1})";
  rc::check("a damaged body never breaks the parser", [&] {
    std::string damaged = body;
    for (const auto& [place, byte] :
         *rc::gen::container<std::vector<std::pair<uint16_t, char>>>(rc::gen::arbitrary<std::pair<uint16_t, char>>())) {
      damaged[place % damaged.size()] = byte;
    }
    const auto request = parse_chat_request(damaged, options());
    if (!request) RC_ASSERT(!request.error().message.empty());
  });
}

}  // namespace
}  // namespace deepinfer
