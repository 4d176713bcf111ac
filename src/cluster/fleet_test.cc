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

LoadMessage load(int64_t rows = 0, int64_t us = 0) {
  return {.pages = 100, .free_pages = 100, .prefill_rows = rows, .prefill_us = us, .ready = true};
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
    fleet.hear(w, load(), 0);
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
  fleet.hear(0, load(), 0);
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
  fleet.hear(0, load(1000, 1'000'000), 0);
  fleet.hear(1, load(1000, 4'000'000), 0);
  int32_t at_fast = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    const Placement placed = fleet.place({.tokens = 100, .hash = i}, {}, {}, 0);
    fleet.note_placed(placed, {});
    at_fast += placed.worker == 0;
  }
  EXPECT_EQ(at_fast, 3);
}

TEST(Fleet, MissingPageEventsAreNoticed) {
  Fleet fleet = fleet_of(1);
  ASSERT_TRUE(fleet.hear(0, BlocksMessage{.sequence = 0}));
  EXPECT_FALSE(fleet.hear(0, BlocksMessage{.sequence = 2}));
}

TEST(Fleet, RolesSplitTheWork) {
  constexpr WorkerRole kRoles[] = {WorkerRole::kEncode, WorkerRole::kPrefill, WorkerRole::kDecode, WorkerRole::kDecode};
  Fleet fleet(RoutingPolicy::kDefault, 4, 30'000'000);
  for (int32_t w = 0; w < 4; ++w) {
    EXPECT_TRUE(fleet.hear(w, HelloMessage{.facts = facts(), .role = kRoles[w], .page_port = 9}, 0));
    fleet.hear(w, load(), 0);
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
