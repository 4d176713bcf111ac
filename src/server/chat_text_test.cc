#include <gtest/gtest.h>

#include "api/chat/response.h"
#include "host/host.h"

namespace deepinfer {
namespace {

TEST(ChatAnswerWriter, TheShortWayWritesTheSameBytes) {
  const auto tokenizer = open_tokenizer_file(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41/tokenizer.json");
  if (!tokenizer) GTEST_SKIP() << tokenizer.error().message;
  for (const bool thinking : {false, true}) {
    for (const bool null_usage : {false, true}) {
      ChatAnswerInfo info;
      info.id = "a\"content\":\"\"b";
      info.model = "m\"reasoning_content\":\"";
      info.created = 7;
      info.thinking = thinking;
      info.null_usage = null_usage;
      OutputStream stream(**tokenizer, {});
      ChatAnswerWriter slow(info), fast(info);
      for (const char* text : {"hello", "", "\"quoted\"\n\x01", "\xe2\x82\xac"}) {
        for (const auto kind : {OutputEvent::Kind::kContent, OutputEvent::Kind::kReasoning, OutputEvent::Kind::kFinish}) {
          OutputEvent event;
          event.kind = kind;
          event.text = text;
          std::string out = "before ";
          fast.append_event(event, stream, out);
          EXPECT_EQ(out, "before " + slow.event(event, stream).dump());
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer
