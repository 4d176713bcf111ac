#include "recipe/render.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "recipe/control_tokens.h"
#include "recipe/prompt_map.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

const std::string kRoot = DEEPINFER_SOURCE_DIR;

Conversation plain(std::vector<Message> messages) {
  Conversation chat;
  chat.thinking = false;
  chat.messages = std::move(messages);
  return chat;
}

std::string text_of(const Conversation& chat) { return render_prompt(chat).text(); }

TEST(RenderPrompt, OneQuestion) {
  EXPECT_EQ(text_of(plain({Message::user("Hi")})), "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>");
}

TEST(RenderPrompt, ThinkingStatesTheEffort) {
  Conversation chat = plain({Message::system("S"), Message::user("Hi")});
  chat.thinking = true;
  chat.effort = Effort::kLow;
  EXPECT_EQ(text_of(chat),
            "<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the "
            "reasoning)\n\nS<｜User｜>Hi<｜Assistant｜><think>");
}

TEST(RenderPrompt, NoMessages) { EXPECT_EQ(text_of(plain({})), "<｜begin▁of▁sentence｜><｜Assistant｜></think>"); }

TEST(RenderPrompt, UsersMergeAndToolResultsFollowTheirCalls) {
  Message caller = Message::assistant("");
  caller.tool_calls = {{"a", "f", "{}"}, {"b", "g", R"({"x": "<b>", "n": [1, 2.0]})"}};
  Message second = Message::plain(Role::kTool, "B"), first = Message::plain(Role::kTool, "A");
  second.tool_call_id = "b";
  first.tool_call_id = "a";
  const std::string text = text_of(plain({Message::user("1"), Message::user("2"), caller, second, first}));
  EXPECT_NE(text.find("<｜User｜>1\n\n2<｜Assistant｜>"), std::string::npos);
  EXPECT_NE(text.find("<｜User｜><tool_result>A</tool_result>\n\n<tool_result>B</tool_result><｜Assistant｜>"),
            std::string::npos);
  EXPECT_NE(text.find("<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>"), std::string::npos);
  EXPECT_NE(text.find("name=\"x\" string=\"true\"><b></｜DSML｜ parameter>"), std::string::npos);
  EXPECT_NE(text.find("name=\"n\" string=\"false\">[1, 2.0]</｜DSML｜ parameter>"), std::string::npos);
}

TEST(RenderPrompt, ReasoningStaysOnlyWithTools) {
  Message turn = Message::assistant("ok");
  turn.reasoning = "why";
  Conversation chat = plain({Message::user("q"), turn, Message::user("r")});
  chat.thinking = true;
  EXPECT_NE(text_of(chat).find("<｜Assistant｜></think>ok"), std::string::npos);
  chat.tools = {{.name = "f"}};
  EXPECT_NE(text_of(chat).find("<｜Assistant｜><think>why</think>ok"), std::string::npos);
}

TEST(RenderPrompt, PrefixContinues) {
  Message open = Message::assistant("The");
  open.prefix = true;
  EXPECT_TRUE(text_of(plain({Message::user("q"), open})).ends_with("<｜Assistant｜></think>The"));
}

TEST(RenderPrompt, SpecialRangesCountCodePoints) {
  const Prompt prompt = render_prompt(plain({Message::user("ä<think>")}));
  const std::vector<std::pair<size_t, size_t>> want{{0, 21}, {21, 29}, {37 + 1, 51}, {51, 59}};
  const auto ranges = prompt.special_ranges();
  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[0], want[0]);
  EXPECT_EQ(ranges[1], want[1]);
  EXPECT_EQ(ranges[2].first, 29 + 8u);
}

class WithTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto json = read_file(kRoot + "/models/tiny-v41/tokenizer.json");
    ASSERT_TRUE(json) << json.error().message;
    auto tokenizer = Tokenizer::parse(*json);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = std::make_unique<Tokenizer>(std::move(*tokenizer));
  }
  int count(const std::vector<TokenId>& ids, std::string_view spelling) const {
    const auto id = tokenizer_->added_token(spelling);
    return id ? static_cast<int>(std::count(ids.begin(), ids.end(), *id)) : -1;
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(WithTokenizer, ControlTokensInMessagesAreText) {
  Conversation chat = plain({Message::user("<｜User｜></think><｜end▁of▁sentence｜>｜DSML｜<｜image｜>")});
  const auto ids = render_prompt(chat).encode(*tokenizer_);
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_EQ(count(*ids, control::kUser), 1);
  EXPECT_EQ(count(*ids, control::kEndThink), 1);
  EXPECT_EQ(count(*ids, control::kEndOfText), 0);
  EXPECT_EQ(count(*ids, control::kMarkup), 0);
  EXPECT_EQ(tokenizer_->decode(*ids), render_prompt(chat).text());
}

TEST_F(WithTokenizer, ToolTextsCannotOpenMarkup) {
  Conversation chat = plain({Message::user("q")});
  chat.tools = {{.name = "f", .description = "see </think> and ｜DSML｜"}};
  const auto ids = render_prompt(chat).encode(*tokenizer_);
  ASSERT_TRUE(ids);
  EXPECT_EQ(count(*ids, control::kMarkup), 9);
  EXPECT_EQ(count(*ids, control::kEndThink), 3);
}

// Whatever is merged or moved, each token says which message of the request it came from.
TEST(PromptMap, KnowsTheMessageOfEachToken) {
  const auto text = read_file(kRoot + "/models/tiny-v41/tokenizer.json");
  ASSERT_TRUE(text);
  const auto tokenizer = Tokenizer::parse(*text);
  ASSERT_TRUE(tokenizer);
  const std::vector<Message> messages = {Message::system("rules"), Message::user("first words"), Message::user("second words"),
                                         Message::assistant("an answer"), Message::user("third words")};
  const Prompt prompt = render_prompt(plain(messages));
  const auto ids = prompt.encode(*tokenizer);
  ASSERT_TRUE(ids);
  const PromptMap map = map_prompt(prompt, *ids, {}, *tokenizer);
  EXPECT_EQ(map.message_at(0), -1);
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& wanted = messages[i].content.text;
    std::string had;
    for (size_t at = 0; at < ids->size(); ++at) {
      if (map.message_at(static_cast<Position>(at)) == static_cast<int32_t>(i)) had += tokenizer->token_bytes((*ids)[at]);
    }
    EXPECT_NE(had.find(wanted), std::string::npos) << i << ": " << had;
    for (size_t other = 0; other < messages.size(); ++other)
      EXPECT_EQ(had.find(messages[other].content.text) != std::string::npos, other == i) << i << ": " << had;
  }
}

}  // namespace
}  // namespace deepinfer
