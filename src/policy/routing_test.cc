#include "policy/routing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace deepinfer {
namespace {

constexpr size_t kPolicies = std::size(kRoutingPolicyNames);

RoutingPolicy policy_at(size_t i) { return static_cast<RoutingPolicy>(i); }

TEST(Routing, NamesReadBack) {
  for (size_t i = 0; i < kPolicies; ++i) EXPECT_EQ(routing_policy_of(kRoutingPolicyNames[i]), policy_at(i));
  EXPECT_EQ(routing_policy_of("nearest"), std::nullopt);
}

// cluster.md section 3: Dynamo's documented example, (prefill, decode) blocks (8, 10), (5, 5), (2, 9) cost 18, 10, 11.
TEST(Routing, DynamosExample) {
  const std::array<PrefillView, 3> workers = {{{.hit_tokens = 0, .held_tokens = 10 * 64},
                                               {.hit_tokens = 3 * 64, .held_tokens = 5 * 64},
                                               {.hit_tokens = 6 * 64, .held_tokens = 9 * 64}}};
  EXPECT_EQ(place_prefill(RoutingPolicy::kDynamo, {.tokens = 8 * 64}, workers).worker, 1);
}

TEST(Routing, DefaultWeighsQueueAgainstHits) {
  std::array<PrefillView, 2> workers = {{{.hit_tokens = 9'000, .queued_tokens = 5'000}, {.hit_tokens = 0}}};
  EXPECT_EQ(place_prefill(RoutingPolicy::kDefault, {.tokens = 10'000}, workers).worker, 0);
  workers[0].queued_tokens = 30'000;  // a hot prefix spreads once its holder is busy enough
  EXPECT_EQ(place_prefill(RoutingPolicy::kDefault, {.tokens = 10'000}, workers).worker, 1);
}

TEST(Routing, DefaultLoadsFromTheStoreWhereThatIsFaster) {
  const PrefillView fast{.us_per_token = 10, .load_us_per_token = 1, .replay_tokens = 128};
  const Placement loaded = predict_first_token({.tokens = 10'000, .stored_tokens = 8'000}, fast);
  EXPECT_EQ(loaded.loaded_tokens, 8'000);
  EXPECT_EQ(loaded.computed_tokens, 2'128);
  EXPECT_DOUBLE_EQ(loaded.first_token_us, 8'000 + 21'280);
  PrefillView slow = fast;
  slow.load_us_per_token = 50;
  const Placement computed = predict_first_token({.tokens = 10'000, .stored_tokens = 8'000}, slow);
  EXPECT_EQ(computed.loaded_tokens, 0);
  EXPECT_DOUBLE_EQ(computed.first_token_us, 100'000);
}

TEST(Routing, RoundRobinSkipsWhoIsNotReady) {
  std::array<PrefillView, 3> workers;
  workers[1].ready = false;
  std::vector<int32_t> chosen;
  for (uint64_t n = 0; n < 6; ++n)
    chosen.push_back(place_prefill(RoutingPolicy::kRoundRobin, {.tokens = 1, .number = n}, workers).worker);
  EXPECT_EQ(chosen, (std::vector<int32_t>{0, 2, 2, 0, 2, 2}));
}

TEST(Routing, SessionsStayAndSpread) {
  std::array<PrefillView, 8> workers;
  std::set<int32_t> used;
  for (uint64_t session = 0; session < 64; ++session) {
    const int32_t home = place_prefill(RoutingPolicy::kSession, {.tokens = 1, .hash = 1, .session = session}, workers).worker;
    EXPECT_EQ(place_prefill(RoutingPolicy::kSession, {.tokens = 9, .hash = 2, .session = session}, workers).worker, home);
    used.insert(home);
  }
  EXPECT_EQ(used.size(), 8u);
}

TEST(Routing, SglangBalancesBeforeItMatches) {
  std::array<PrefillView, 2> workers = {{{.hit_tokens = 900, .active_requests = 60}, {.active_requests = 0}}};
  EXPECT_EQ(place_prefill(RoutingPolicy::kSglang, {.tokens = 1000}, workers).worker, 0);
  workers[0].active_requests = 65;
  EXPECT_EQ(place_prefill(RoutingPolicy::kSglang, {.tokens = 1000}, workers).worker, 1);
}

TEST(Routing, PrebleExploitsOnlyWhatIsMostlyShared) {
  std::array<PrefillView, 2> workers = {{{.hit_tokens = 600, .recent_tokens = 5'000}, {.recent_tokens = 0}}};
  EXPECT_EQ(place_prefill(RoutingPolicy::kPreble, {.tokens = 1'000}, workers).worker, 0);
  workers[0].hit_tokens = 400;
  EXPECT_EQ(place_prefill(RoutingPolicy::kPreble, {.tokens = 1'000}, workers).worker, 1);
}

std::vector<PrefillView> random_workers() {
  const auto count = static_cast<size_t>(*rc::gen::inRange(0, 12));
  std::vector<PrefillView> workers(count);
  for (PrefillView& worker : workers) {
    worker = {.ready = *rc::gen::inRange(0, 3) != 0,
              .hit_tokens = *rc::gen::inRange(0, 4'000),
              .queued_tokens = *rc::gen::inRange(0, 100'000),
              .active_requests = *rc::gen::inRange(0, 200),
              .held_tokens = *rc::gen::inRange(0, 50'000),
              .capacity_tokens = *rc::gen::element<int64_t>(0, 60'000),
              .recent_tokens = *rc::gen::inRange(0, 100'000),
              .us_per_token = static_cast<double>(*rc::gen::inRange(1, 50)),
              .load_us_per_token = static_cast<double>(*rc::gen::inRange(0, 20)),
              .replay_tokens = *rc::gen::element<int64_t>(0, 128)};
  }
  return workers;
}

RC_GTEST_PROP(RoutingProperty, ChoosesAReadyWorkerIfThereIsOne, ()) {
  const std::vector<PrefillView> workers = random_workers();
  const PromptView prompt{.tokens = *rc::gen::inRange(4'000, 20'000),
                          .stored_tokens = *rc::gen::inRange(0, 4'000),
                          .hash = *rc::gen::arbitrary<uint64_t>(),
                          .session = 7,
                          .number = *rc::gen::arbitrary<uint64_t>()};
  bool any = false;
  for (const PrefillView& worker : workers) any |= worker.ready;
  for (size_t i = 0; i < kPolicies; ++i) {
    const Placement placed = place_prefill(policy_at(i), prompt, workers);
    RC_ASSERT((placed.worker >= 0) == any);
    if (any) RC_ASSERT(workers[static_cast<size_t>(placed.worker)].ready);
    RC_ASSERT(place_prefill(policy_at(i), prompt, workers).worker == placed.worker);
  }
}

// What the others do does not make a worker look worse: one that is better in everything is never passed over.
RC_GTEST_PROP(RoutingProperty, DefaultTakesTheDominatingWorker, ()) {
  std::vector<PrefillView> workers = random_workers();
  workers.push_back({.hit_tokens = 4'000, .queued_tokens = 0, .us_per_token = 1});
  const PromptView prompt{.tokens = *rc::gen::inRange(4'001, 20'000), .hash = *rc::gen::arbitrary<uint64_t>()};
  for (PrefillView& worker : workers) worker.queued_tokens += &worker == &workers.back() ? 0 : 2'000;
  RC_ASSERT(place_prefill(RoutingPolicy::kDefault, prompt, workers).worker == static_cast<int32_t>(workers.size()) - 1);
}

TEST(PlaceDecode, LeastLoadedThatCanReserve) {
  const std::array<DecodeView, 4> workers = {
      {{.ready = false, .capacity_tokens = 100'000, .max_requests = 8},
       {.used_tokens = 90'000, .capacity_tokens = 100'000, .max_requests = 8},
       {.used_tokens = 50'000, .capacity_tokens = 100'000, .active_requests = 2, .max_requests = 8},
       {.used_tokens = 0, .capacity_tokens = 100'000, .active_requests = 8, .max_requests = 8}}};
  EXPECT_EQ(place_decode(20'000, 1, workers), 2);
  EXPECT_EQ(place_decode(5'000, 1, workers), 2);
  EXPECT_EQ(place_decode(60'000, 1, workers), -1);
}

TEST(Disaggregation, PaysFromTheThreshold) {
  EXPECT_TRUE(Disaggregation{}.pays(1'000, 488));
  EXPECT_FALSE(Disaggregation{}.pays(1'000, 489));
}

}  // namespace
}  // namespace deepinfer
