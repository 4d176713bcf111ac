#include "cluster/fleet.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

ServiceFacts facts(const char* fingerprint = "fp_1") {
  ServiceFacts out{.model = "m",
                   .fingerprint = fingerprint,
                   .context = 4096,
                   .max_batch = 2,
                   .queue_limit = 1,
                   .pages = 100,
                   .page_tokens = 64};
  out.shape.vocab = out.shape.hidden = 8;
  return out;
}

LoadMessage load(int64_t rows = 0, int64_t us = 0, uint64_t sequence = 0) {
  return {.sequence = sequence, .pages = 100, .free_pages = 100, .prefill_rows = rows, .prefill_us = us, .ready = true};
}

std::vector<PageKey> keys(uint64_t from, uint64_t count) {
  std::vector<PageKey> out;
  for (uint64_t i = 0; i < count; ++i) out.push_back({worker_rank(from, i), i});
  return out;
}

Fleet fleet_of(int32_t workers) {
  Fleet fleet(RoutingPolicy::kDefault, workers, 30'000'000);
  for (int32_t w = 0; w < workers; ++w) {
    EXPECT_TRUE(fleet.hear(w, HelloMessage{.facts = facts()}, 0));
    EXPECT_TRUE(fleet.hear(w, load(), 0));
  }
  return fleet;
}

TEST(Fleet, PromptsFollowTheirPages) {
  Fleet fleet = fleet_of(4);
  const auto prompt = keys(1, 10);
  ASSERT_TRUE(fleet.hear(2, BlocksMessage{.sequence = 0, .stored = prompt}));
  EXPECT_EQ(fleet.place({.tokens = 700, .hash = 1}, prompt, {}, 0).worker, 2);
  ASSERT_TRUE(fleet.hear(2, BlocksMessage{.sequence = 1, .removed = prompt}));
  const Placement placed = fleet.place({.tokens = 700, .hash = 1}, prompt, {}, 0);
  EXPECT_EQ(placed.computed_tokens, 700);
}

// Two prompts with one beginning that come at once: the second goes where the first will leave its pages - until the queue there
// is longer than computing them again.
TEST(Fleet, WhatWasPlacedCountsBeforeItIsComputed) {
  Fleet fleet = fleet_of(2);
  const auto prompt = keys(1, 10);
  const Placement first = fleet.place({.tokens = 640, .hash = 5}, prompt, {}, 0);
  fleet.note_placed(first, prompt);
  const Placement second = fleet.place({.tokens = 640, .hash = 6}, prompt, {}, 0);
  EXPECT_EQ(second.worker, first.worker);
  fleet.note_computed(first, prompt);
  EXPECT_EQ(fleet.place({.tokens = 640, .hash = 7}, prompt, {}, 0).computed_tokens, 640)
      << "a promise that was not kept is forgotten";
}

TEST(Fleet, WhoIsNoChoiceAndWhy) {
  Fleet fleet(RoutingPolicy::kDefault, 3, 30'000'000);
  EXPECT_EQ(fleet.place({.tokens = 9}, {}, {}, 0).worker, -1);
  EXPECT_EQ(fleet.trouble(0, 0), "not connected yet");
  ASSERT_TRUE(fleet.hear(0, HelloMessage{.facts = facts()}, 0));
  EXPECT_EQ(fleet.trouble(0, 0), "not ready");
  ASSERT_TRUE(fleet.hear(0, load(), 0));
  EXPECT_EQ(fleet.trouble(0, 0), "");
  EXPECT_EQ(fleet.trouble(0, 2'500'000), "silent for 2.5 s");
  EXPECT_FALSE(fleet.hangs(0, 2'500'000));
  EXPECT_TRUE(fleet.hangs(0, 5'500'000));
  EXPECT_EQ(fleet.hear(1, HelloMessage{.facts = facts("fp_2")}, 0).error().message,
            "it serves m (fp_2, context 4096), this router began with m (fp_1, context 4096): restart it for another model");
  EXPECT_FALSE(fleet.hear(1, HelloMessage{.protocol = 99, .facts = facts()}, 0));
  ServiceFacts none = facts();
  none.page_tokens = 0;
  EXPECT_EQ(fleet.hear(1, HelloMessage{.facts = none}, 0).error().code, ErrorCode::kCorrupt);
  fleet.note_open(2, 0);
  EXPECT_TRUE(fleet.hangs(2, 5'500'000)) << "a link without a hello";
  fleet.lose(0, "the peer left");
  EXPECT_EQ(fleet.trouble(0, 0), "the peer left");
  EXPECT_EQ(fleet.why_none(0).code, ErrorCode::kUnavailable);
}

TEST(Fleet, AFullWorkerIsToldApartFromNone) {
  Fleet fleet = fleet_of(1);
  for (int i = 0; i < 3; ++i) {
    const Placement placed = fleet.place({.tokens = 9}, {}, {}, 0);
    ASSERT_EQ(placed.worker, 0);
    fleet.note_placed(placed, {});
  }
  EXPECT_EQ(fleet.place({.tokens = 9}, {}, {}, 0).worker, -1);
  EXPECT_EQ(fleet.why_none(0).code, ErrorCode::kExhausted);
  fleet.note_end(0);
  EXPECT_EQ(fleet.place({.tokens = 9}, {}, {}, 0).worker, 0);
}

TEST(Fleet, SlowWorkersGetLess) {
  Fleet fleet = fleet_of(2);
  ASSERT_TRUE(fleet.hear(0, load(1000, 1'000'000, 1), 0));
  ASSERT_TRUE(fleet.hear(1, load(1000, 4'000'000, 1), 0));
  int32_t at_fast = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    const Placement placed = fleet.place({.tokens = 100, .hash = i}, {}, {}, 0);
    fleet.note_placed(placed, {});
    at_fast += placed.worker == 0;
  }
  EXPECT_EQ(at_fast, 3);
}

// A link on which something went missing begins anew, and with it the view: hello, and all pages again.
TEST(Fleet, MissingEventsAreNoticedAndASnapshotMendsIt) {
  Fleet fleet = fleet_of(1);
  const auto prompt = keys(1, 10), other = keys(2, 10);
  ASSERT_TRUE(fleet.hear(0, BlocksMessage{.sequence = 0, .stored = prompt}));
  EXPECT_FALSE(fleet.hear(0, BlocksMessage{.sequence = 2, .stored = other}));
  EXPECT_EQ(fleet.hear(0, load(0, 0, 2), 0).error().message, "its loads jump from 1 to 2");
  fleet.lose(0, "its page events jump");
  fleet.note_open(0, 0);
  ASSERT_TRUE(fleet.hear(0, HelloMessage{.facts = facts()}, 0));
  ASSERT_TRUE(fleet.hear(0, BlocksMessage{.sequence = 0, .stored = other}));
  ASSERT_TRUE(fleet.hear(0, load(), 0));
  EXPECT_EQ(fleet.place({.tokens = 640, .hash = 1}, other, {}, 0).computed_tokens, 1);
  EXPECT_EQ(fleet.place({.tokens = 640, .hash = 1}, prompt, {}, 0).computed_tokens, 640);
}

TEST(Fleet, WhoseStepTakesTooLongIsLeftIfThereIsAnother) {
  Fleet fleet = fleet_of(2);
  uint64_t sequence = 1;
  const auto hear = [&](int64_t age_us, int32_t workers = 2) {
    for (int32_t w = 0; w < workers; ++w) {
      LoadMessage message = load(0, 0, sequence);
      message.step_age_us = w == 0 ? age_us : 1'000;
      EXPECT_TRUE(fleet.hear(w, message, 0));
    }
    ++sequence;
  };
  for (int i = 0; i < 64; ++i) hear(i % 2 == 0 ? 200'000 : 1'000);
  hear(3'900'000);
  EXPECT_EQ(fleet.trouble(0, 0), "");
  hear(4'100'000);
  EXPECT_EQ(fleet.trouble(0, 0), "its step has taken 4.1 s, its steps take less than 4.0 s");
  EXPECT_TRUE(fleet.hangs(0, 0));
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(fleet.place({.tokens = 9, .hash = i}, {}, {}, 0).worker, 1);
  fleet.note_hung(0);
  EXPECT_FALSE(fleet.hangs(0, 0)) << "steps that are long for everybody must not chase an answer from worker to worker";
  fleet.lose(1, "gone");
  EXPECT_FALSE(fleet.hangs(0, 0)) << "there is nowhere to go";
  EXPECT_EQ(fleet.place({.tokens = 9}, {}, {}, 0).worker, 0);
  hear(31'000'000, 1);
  EXPECT_TRUE(fleet.hangs(0, 0));
}

TEST(Fleet, VacantSlotsAreNobody) {
  Fleet fleet = fleet_of(1);
  EXPECT_EQ(fleet.capacity(0).room, 3);
  fleet.vacate(0);
  EXPECT_EQ(fleet.why_none(0).message, "no worker is ready: none is known");
  EXPECT_EQ(fleet.capacity(0).slots, 0);
  fleet.lose(0, "h:1: connection refused");
  EXPECT_EQ(fleet.why_none(0).message, "no worker is ready: worker 1: h:1: connection refused");
  EXPECT_EQ(fleet.refusal(0).message, "no worker is ready: try again later");
}

// One hot prefix and a queue where it is: others compute it, too, and later share its load.
TEST(Fleet, HotPrefixesSpread) {
  Fleet fleet = fleet_of(4);
  ServiceFacts wide = facts();
  wide.max_batch = 100;
  for (int32_t w = 0; w < 4; ++w) ASSERT_TRUE(fleet.hear(w, HelloMessage{.facts = wide}, 0));
  for (int32_t w = 0; w < 4; ++w) ASSERT_TRUE(fleet.hear(w, load(0, 0, 1), 0));
  const auto prompt = keys(1, 10);
  ASSERT_TRUE(fleet.hear(2, BlocksMessage{.sequence = 0, .stored = prompt}));
  std::vector<int> placed(4);
  for (uint64_t i = 0; i < 40; ++i) {
    const Placement where = fleet.place({.tokens = 1400, .hash = i}, prompt, {}, 0);
    ASSERT_GE(where.worker, 0);
    fleet.note_placed(where, prompt);
    ++placed[static_cast<size_t>(where.worker)];
  }
  EXPECT_GE(placed[2], 10);
  for (const int at_one : placed) EXPECT_GE(at_one, 5);
}

TEST(Fleet, RolesSplitTheWork) {
  constexpr WorkerRole kRoles[] = {WorkerRole::kEncode, WorkerRole::kPrefill, WorkerRole::kDecode, WorkerRole::kDecode};
  Fleet fleet(RoutingPolicy::kDefault, 4, 30'000'000);
  for (int32_t w = 0; w < 4; ++w) {
    EXPECT_TRUE(fleet.hear(w, HelloMessage{.facts = facts(), .role = kRoles[w], .page_port = 9}, 0));
    EXPECT_TRUE(fleet.hear(w, load(), 0));
  }
  const auto prompt = keys(1, 20);
  const RouteChoice apart = fleet.route({.tokens = 1300}, 1400, prompt, {}, 0);
  EXPECT_EQ(apart.placed.worker, 1);
  ASSERT_GE(apart.decode, 2);
  EXPECT_EQ(apart.held_pages, 0);
  fleet.note_coming(apart.decode, 1400);
  EXPECT_NE(fleet.route({.tokens = 1300}, 1400, prompt, {}, 0).decode, apart.decode) << "what is coming counts";
  fleet.note_came(apart.decode, 1400);
  // Little to compute stays together.
  EXPECT_EQ(fleet.route({.tokens = 300}, 400, prompt, {}, 0).decode, -1);
  EXPECT_GE(fleet.route({.tokens = 300}, 400, prompt, {}, 0).placed.worker, 2);
  ASSERT_TRUE(fleet.hear(3, BlocksMessage{.sequence = 0, .stored = keys(1, 15)}));
  const RouteChoice known = fleet.route({.tokens = 1300}, 1400, prompt, {}, 0);
  EXPECT_EQ(known.placed.worker, 3);
  EXPECT_EQ(known.decode, -1);
  // No room for the answer where it would be decoded.
  EXPECT_EQ(fleet.route({.tokens = 5000}, 7000, {}, {}, 0).decode, -1);
  // Whoever is left does it.
  const int32_t decoders[] = {2, 3};
  EXPECT_EQ(fleet.route({.tokens = 1300}, 1400, prompt, decoders, 0).placed.worker, 1);
  const int32_t prefill[] = {1};
  EXPECT_EQ(fleet.route({.tokens = 1300}, 1400, {}, prefill, 0).decode, -1);
  for (int i = 0; i < 3; ++i) fleet.note_coming(2, 10), fleet.note_coming(3, 10);
  EXPECT_EQ(fleet.route({.tokens = 300}, 400, prompt, {}, 0).placed.worker, -1) << "who is full is waited for";
  for (int i = 0; i < 3; ++i) fleet.note_came(2, 10), fleet.note_came(3, 10);
  const int32_t all_but_encode[] = {1, 2, 3};
  EXPECT_EQ(fleet.route({.tokens = 1300}, 1400, prompt, all_but_encode, 0).placed.worker, -1);
  EXPECT_EQ(fleet.place(Work::kPicture, {.tokens = 9}, {}, {}, 0).worker, 0);
  const int32_t encode[] = {0};
  EXPECT_GT(fleet.place(Work::kPicture, {.tokens = 9}, {}, encode, 0).worker, 0);
  EXPECT_EQ(fleet.scale_sample(0, "decode").workers, 2);
  EXPECT_EQ(fleet.scale_sample(0).workers, 4);
  for (int32_t w = 1; w < 4; ++w) fleet.lose(w, "gone");
  EXPECT_FALSE(fleet.any_ready(0)) << "pictures alone are no service";
}

}  // namespace
}  // namespace deepinfer
