#include <deepinfer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace {

struct Collected {
  std::string text, reasoning;
  size_t stop_after = SIZE_MAX;  // bytes
};

int collect(void* user, const char* text, size_t length, int reasoning) {
  auto& out = *static_cast<Collected*>(user);
  (reasoning ? out.reasoning : out.text).append(text, length);
  return out.text.size() >= out.stop_after;
}

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "c_api_test_" + std::to_string(getpid()) + ".jsonl";
    ASSERT_TRUE(deepinfer::write_file(path_,
                                      "{\"scripted\": 1}\n"
                                      "{\"match\": \"think\", \"text\": \"Hm.</think>Yes, well.\"}\n"
                                      "{\"match\": \"long\", \"text\": \"" +
                                          std::string(3000, 'x') + "\"}\n{\"text\": \"Grüße!\"}\n")
                    .ok());
    model_ = "scripted:" + path_;
    options_.model = model_.c_str();
    ASSERT_EQ(deepinfer_open(&options_, &engine_), DEEPINFER_OK) << deepinfer_last_error();
  }
  void TearDown() override {
    deepinfer_close(engine_);
    unlink(path_.c_str());
  }
  deepinfer_code ask(const char* text, Collected& out, deepinfer_result* result = nullptr, const char* think = nullptr) {
    const deepinfer_message message = {"user", text};
    deepinfer_request request = DEEPINFER_REQUEST_DEFAULTS;
    request.messages = &message;
    request.num_messages = 1;
    request.think = think;
    return deepinfer_generate(engine_, &request, collect, &out, result);
  }

  std::string path_, model_;
  deepinfer_options options_ = {};
  deepinfer_engine* engine_ = nullptr;
};

TEST_F(CApi, AnswersWithTextThinkingAndCounts) {
  Collected plain, thinking;
  deepinfer_result result = {};
  ASSERT_EQ(ask("hi", plain, &result), DEEPINFER_OK) << deepinfer_last_error();
  EXPECT_EQ(plain.text, "Grüße!");
  EXPECT_EQ(result.finish, DEEPINFER_FINISH_STOP);
  EXPECT_GT(result.prompt_tokens, 2);
  EXPECT_GT(result.completion_tokens, 1);
  ASSERT_EQ(ask("think", thinking, nullptr, "high"), DEEPINFER_OK) << deepinfer_last_error();
  EXPECT_EQ(thinking.reasoning, "Hm.");
  EXPECT_EQ(thinking.text, "Yes, well.");
}

TEST_F(CApi, CallbackCancels) {
  Collected out;
  out.stop_after = 10;
  deepinfer_result result = {};
  ASSERT_EQ(ask("long", out, &result), DEEPINFER_OK) << deepinfer_last_error();
  EXPECT_EQ(result.finish, DEEPINFER_FINISH_CANCELLED);
  EXPECT_LT(out.text.size(), 3000u);
}

TEST_F(CApi, ThreadsShareOneEngine) {
  std::vector<std::thread> threads;
  std::vector<std::string> answers(6);
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&, i] {
      // The tiny preset has a queue of two: full is an answer, too, and the caller tries again.
      for (deepinfer_code code = DEEPINFER_EXHAUSTED; code == DEEPINFER_EXHAUSTED;) {
        Collected out;
        code = ask("hi", out);
        answers[i] = out.text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& answer : answers) EXPECT_EQ(answer, "Grüße!");
}

TEST_F(CApi, FaultsAreCodesWithAMessage) {
  Collected out;
  EXPECT_EQ(ask("\xff", out), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(deepinfer_last_error(), "UTF-8"), nullptr) << deepinfer_last_error();
  EXPECT_EQ(ask("hi", out, nullptr, "sometimes"), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_generate(engine_, nullptr, collect, &out, nullptr), DEEPINFER_INVALID_ARGUMENT);
  EXPECT_EQ(deepinfer_open(nullptr, nullptr), DEEPINFER_INVALID_ARGUMENT);
  deepinfer_engine* other = nullptr;
  deepinfer_options options = {};
  options.model = "/no/such/folder";
  EXPECT_NE(deepinfer_open(&options, &other), DEEPINFER_OK);
  EXPECT_EQ(other, nullptr);
  EXPECT_NE(std::strstr(deepinfer_last_error(), "/no/such/folder"), nullptr) << deepinfer_last_error();
  EXPECT_STRNE(deepinfer_version(), "");
}

}  // namespace
