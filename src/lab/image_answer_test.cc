// Pictures through recipe, vision tower and engine; it stands here because the model lies packed in the tree.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "host/ask.h"
#include "host/image_encoder.h"
#include "lab/unpacked_folder.h"

namespace deepinfer {
namespace {

const std::string kGolden = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden";

class ImageAnswerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto folder = UnpackedFolder::open(kGolden + "/model");
    ASSERT_TRUE(folder) << folder.error().message;
    folder_ = new UnpackedFolder(std::move(*folder));
    HostSettings settings;
    settings.model = folder_->path() + "/tiny-a";
    settings.threads = 1;
    auto host = Host::open(settings, {});
    ASSERT_TRUE(host) << host.error().message;
    host_ = host->release();
  }
  static void TearDownTestSuite() {
    delete host_;
    delete folder_;
  }

  static Conversation show(const std::string& file, const std::string& text) {
    Conversation chat;
    chat.thinking = false;
    Message message = Message::user("");
    const auto bytes = read_file(kGolden + "/recipe/images/" + file);
    message.content.append(ImageReference{encode_data_url(*bytes), true, "high", "messages[0]"});
    message.content.append(std::string_view(text));
    chat.messages.push_back(std::move(message));
    return chat;
  }

  struct Answer {
    std::string text;
    int64_t cached = 0;
  };
  static Answer ask(const Conversation& chat) {
    AskOptions options;
    options.temperature = 0.0f;
    options.max_tokens = 6;
    EventQueue queue;
    auto ask = Ask::start(*host_, chat, options, queue);
    EXPECT_TRUE(ask) << ask.error().message;
    Answer out;
    std::vector<OutputEvent> pieces;
    for (bool done = false; ask && !done;) {
      auto taken = (*ask)->take(queue.pop(), pieces);
      if (!taken) return out;
      done = *taken;
    }
    for (const OutputEvent& piece : pieces) out.text += piece.text;
    if (ask) out.cached = (*ask)->report().usage.cached_tokens;
    return out;
  }

  static UnpackedFolder* folder_;
  static Host* host_;
};
UnpackedFolder* ImageAnswerTest::folder_ = nullptr;
Host* ImageAnswerTest::host_ = nullptr;

std::string long_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += " word " + std::to_string(i);
  return text;
}

TEST_F(ImageAnswerTest, EqualPicturesAreEncodedOnceAndNamed) {
  const int64_t before = host_->image_encoder().num_encoded();
  const auto one = Ask::prepare(*host_, show("rgb_pattern_96x64.png", "a"), {});
  const auto two = Ask::prepare(*host_, show("rgb_pattern_96x64.png", "b"), {});
  const auto other = Ask::prepare(*host_, show("gray_200x150.jpg", "a"), {});
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(two && other);
  EXPECT_EQ(host_->image_encoder().num_encoded() - before, 2);
  ASSERT_EQ(one->images.size(), 1u);
  const ImageSpan& span = one->images[0];
  EXPECT_EQ(span.content_hash, two->images[0].content_hash);
  EXPECT_NE(span.content_hash, other->images[0].content_hash);
  EXPECT_EQ(span.embeddings.size(), static_cast<size_t>(span.rows) * static_cast<size_t>(host_->model().shape().hidden));
  const TokenId image_id = host_->model().shape().image_id;
  for (int32_t i = 0; i < span.rows; ++i) EXPECT_EQ(one->ids[static_cast<size_t>(span.begin + i)], image_id);
  EXPECT_EQ(std::count(one->ids.begin(), one->ids.end(), image_id), span.rows);
  const auto counted = count_prompt_tokens(*host_, show("rgb_pattern_96x64.png", "a"));
  ASSERT_TRUE(counted);
  EXPECT_EQ(*counted, static_cast<int64_t>(one->ids.size()));
}

TEST_F(ImageAnswerTest, TheCacheKnowsPicturesByTheirContent) {
  const std::string text = long_text();
  const Answer cold = ask(show("rgb_smooth_640x400.png", text));
  const Answer warm = ask(show("rgb_smooth_640x400.png", text));
  EXPECT_EQ(cold.text, warm.text);
  EXPECT_EQ(cold.cached, 0);
  EXPECT_GT(warm.cached, 0);
  // Another picture of the same size in the same place.
  EXPECT_EQ(ask(show("big_1700x900.jpg", text)).cached, 0);
}

TEST_F(ImageAnswerTest, APromptThatDoesNotFitIsRefusedBeforeTheTowerRuns) {
  const int64_t before = host_->image_encoder().num_encoded();
  const int64_t context = host_->engine().options().context;
  const auto refused = Ask::prepare(*host_, show("rgb_smooth_640x400.png", "a"), {.max_tokens = context});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.substr(0, 43),
            "This model's maximum context length is " + std::to_string(context).substr(0, 4));
  EXPECT_EQ(host_->image_encoder().num_encoded(), before);
  // A prompt that fills the context leaves no room for the one token that each answer has.
  std::string words = "word";
  AskOptions fits{.max_tokens = 1 << 20, .fits_max_tokens = true};
  for (int i = 0; i < 2 * context; ++i) words += " word";
  const auto filled = Ask::prepare(*host_, show("tiny_1x1.png", words), fits);
  ASSERT_FALSE(filled);
  EXPECT_NE(filled.error().message.find("maximum context length"), std::string::npos);
}

TEST_F(ImageAnswerTest, ProblemsNameTheirPlace) {
  Conversation chat = show("tiny_1x1.png", "x");
  chat.messages[0].content.images[0].image.url = "data:image/png;base64,AAAA";
  const auto broken = Ask::prepare(*host_, chat, {});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().message.substr(0, 22), "messages[0].image[0]: ");
  chat.messages[0].content.images[0].image.url = "https://e.example/a.png";
  EXPECT_FALSE(Ask::prepare(*host_, chat, {}));
}

TEST(ImageAnswer, AModelOfTextSaysSo) {
  HostSettings settings;
  settings.model = "scripted:" + std::string(DEEPINFER_SOURCE_DIR) + "/examples/hello.script.jsonl";
  settings.threads = 1;
  const auto host = Host::open(settings, {});
  ASSERT_TRUE(host) << host.error().message;
  Conversation chat;
  Message message = Message::user("");
  message.content.append(ImageReference{"data:image/png;base64,AAAA", true, "high", ""});
  chat.messages.push_back(std::move(message));
  const auto prepared = Ask::prepare(**host, chat, {});
  ASSERT_FALSE(prepared);
  EXPECT_NE(prepared.error().message.find("no vision tower"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
