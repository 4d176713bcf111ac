#include "recipe/prompt_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/file.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

class PromptCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::parse(*read_file(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = std::make_unique<Tokenizer>(std::move(*tokenizer));
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(PromptCacheTest, SameIdsAsWithout) {
  rc::check("a conversation that grows and changes has the ids of its prompt", [&] {
    PromptCache cache({.max_prompts = 3, .max_bytes = 1 << 16, .min_bytes = 0});
    Conversation chat;
    for (const uint8_t step : *rc::gen::container<std::vector<uint8_t>>(rc::gen::arbitrary<uint8_t>())) {
      if (step % 7 == 0 && !chat.messages.empty()) chat.messages.pop_back();
      if (step % 11 == 0) chat.thinking = !chat.thinking;
      const std::string text = std::string(step % 40, 'a') + " turn " + std::to_string(step) + " <think> é";
      chat.messages.push_back(step % 2 ? Message::user(text) : Message::assistant(text));
      const Prompt prompt = render_prompt(chat);
      const auto whole = prompt.encode(*tokenizer_), cached = cache.encode(prompt, *tokenizer_, step % 3 ? "a" : "b");
      RC_ASSERT(whole.ok() && cached.ok());
      RC_ASSERT(*whole == *cached);
      RC_ASSERT(cache.bytes() <= size_t{1} << 16);
    }
  });
}

TEST_F(PromptCacheTest, OnlyTheOwnTenantReuses) {
  PromptCache cache({.min_bytes = 0});
  Conversation chat;
  chat.messages.push_back(Message::user("Hello there."));
  ASSERT_TRUE(cache.encode(render_prompt(chat), *tokenizer_, "a"));
  chat.messages.push_back(Message::assistant("Hi."));
  chat.messages.push_back(Message::user("And now?"));
  ASSERT_TRUE(cache.encode(render_prompt(chat), *tokenizer_, "b"));
  EXPECT_EQ(cache.num_reused(), 0);
  ASSERT_TRUE(cache.encode(render_prompt(chat), *tokenizer_, "a"));
  EXPECT_EQ(cache.num_reused(), 1);
}

}  // namespace
}  // namespace deepinfer
