#include "cluster/wire.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer {
namespace {

SubmitMessage some_submit() {
  SubmitMessage m;
  m.number = 77;
  m.request.prompt = {1, 2, 3};
  m.request.answered = {4};
  m.request.images = {{.begin = 1, .rows = 2, .embeddings = {9, 8, 7, 6}, .content_hash = "abc"}};
  m.request.sampling = {.temperature = 0.5f, .top_k = 7, .seed = 99, .logit_bias = {{3, 1.5f}}, .num_logprobs = 2};
  m.request.stop_ids = {1};
  m.request.max_tokens = 12;
  m.request.tenant = "key-1";
  m.request.priority = -2;
  m.request.deadline_us = 5'000'000;
  m.request.retention = RetentionClass::kAgent;
  m.request.original_prompt_tokens = 3;
  m.hand_over = 1234567, m.to_host = "10.0.0.8", m.to_port = 8201, m.first_page = 2;
  return m;
}

EventMessage some_event() {
  EventMessage m;
  m.number = 3;
  m.event.index = 9;
  m.event.token = 17;
  m.event.logprob = TokenLogprob{17, -0.5f};
  m.event.top_logprobs = {{17, -0.5f}, {4, -1.5f}};
  m.event.finish = FinishReason::kLength;
  m.event.error = "none";
  m.event.usage = {.prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = 9};
  PrefixVerdict verdict{.reason = MissReason::kChanged, .cached_tokens = 64, .first_different = 70};
  verdict.here.set(std::vector<TokenId>{5, 6});
  m.event.report = RequestReport{verdict, {.waiting_us = 4, .preempted = 1}};
  return m;
}

// Writing what was read gives the same bytes: every field is in the message.
template <class M>
void expect_round_trip(const M& value) {
  const std::string bytes = write_message(value);
  const auto back = read_message<M>(bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(write_message(*back), bytes);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(read_message<M>(std::string_view(bytes).substr(0, size))) << size;
  EXPECT_FALSE(read_message<M>(bytes + '\0'));
}

TEST(ClusterWire, EveryMessageReadsBack) {
  HelloMessage hello{.facts = {.model = "m", .fingerprint = "fp_1", .context = 99}};
  hello.facts.shape.vision = VisionShape{.patch = 14, .max_wh_ratio = 3.5};
  expect_round_trip(hello);
  expect_round_trip(some_submit());
  expect_round_trip(CancelMessage{.number = 8});
  expect_round_trip(FinishMessage{.number = 8, .last_index = -1});
  expect_round_trip(some_event());
  expect_round_trip(EncodeMessage{.number = 4, .width = 2, .height = 1, .tokens = 1, .pixels = {1, 2, 3, 4, 5, 6}});
  expect_round_trip(EncodedMessage{.number = 4, .embeddings = {7, 8}});
  expect_round_trip(RefusedMessage{.number = 1, .code = ErrorCode::kTooLarge, .message = "no"});
  expect_round_trip(LoadMessage{.running = 3, .ready = true, .reason = "fine"});
  expect_round_trip(BlocksMessage{.sequence = 1, .stored = {{1, 2}, {3, 4}}, .removed = {{5, 6}}});
}

TEST(ClusterWire, FieldsKeepTheirValues) {
  const auto submit = read_message<SubmitMessage>(write_message(some_submit()));
  ASSERT_TRUE(submit);
  EXPECT_EQ(submit->request.sampling.seed, 99u);
  EXPECT_EQ(submit->request.images[0].embeddings, (std::vector<uint16_t>{9, 8, 7, 6}));
  EXPECT_EQ(submit->request.retention, RetentionClass::kAgent);
  const auto event = read_message<EventMessage>(write_message(some_event()));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->event.report->prefix->here.span()[1], 6);
  EXPECT_EQ(event->event.top_logprobs[1].token, 4);
}

TEST(ClusterWire, DamagedBytesAreRefusedOrAnotherMessage) {
  std::mt19937 random(5);
  const std::string good = write_message(some_submit());
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto read = read_message<SubmitMessage>(bytes);
    if (!read) {
      EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace deepinfer
