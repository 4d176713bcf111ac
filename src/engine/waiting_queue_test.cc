#include "engine/waiting_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace deepinfer {
namespace {

struct Line {
  std::unique_ptr<Sequence> sequence(RequestId id, const char* tenant, int32_t priority = 0) {
    auto out = std::make_unique<Sequence>();
    out->request.id = id;
    out->request.priority = priority;
    out->tenant = accounts.enter(tenant);
    return out;
  }
  void push(RequestId id, const char* tenant, int32_t priority = 0) { queue.push(sequence(id, tenant, priority)); }
  RequestId start() {
    const Sequence* next = queue.next(accounts);
    if (!next) return 0;
    return queue.take(*next)->request.id;
  }

  TokenAccounts accounts;
  WaitingQueue queue;
};

TEST(WaitingQueue, PriorityThenFewestTokensThenAge) {
  Line line;
  line.push(1, "a"), line.push(2, "a"), line.push(3, "b"), line.push(4, "c", 5);
  line.queue.begin_round();
  EXPECT_EQ(line.start(), 4u);
  EXPECT_EQ(line.start(), 1u) << "equal accounts: the oldest";
  line.accounts.charge(line.queue.find(2)->tenant, 100);
  EXPECT_EQ(line.start(), 3u);
  EXPECT_EQ(line.start(), 2u);
  EXPECT_EQ(line.start(), 0u);
  EXPECT_TRUE(line.queue.empty());
}

TEST(WaitingQueue, WhoComesBackStandsWhereItStood) {
  Line line;
  line.push(2, "a"), line.push(3, "a"), line.push(1, "a");
  EXPECT_EQ(line.start(), 1u);
}

TEST(WaitingQueue, ThePassedOverAreAskedInTheNextRoundAndARoundEnds) {
  Line line;
  for (RequestId id = 1; id <= 100; ++id) line.push(id, "a", id == 100 ? -1 : 0);
  line.queue.begin_round();
  int32_t passed = 0;
  while (Sequence* next = line.queue.next(line.accounts)) {
    EXPECT_EQ(next->request.id, static_cast<RequestId>(passed + 1));
    line.queue.pass_over(*next);
    ++passed;
  }
  EXPECT_EQ(passed, WaitingQueue::kMostPassed);
  const auto gone = line.queue.take(*line.queue.find(1));
  line.queue.begin_round();
  EXPECT_EQ(line.start(), 2u);
}

TEST(WaitingQueue, AWholeLevelThatWaitsLetsTheNextLevelPass) {
  Line line;
  line.push(1, "a", 1), line.push(2, "a", 0);
  line.queue.begin_round();
  line.queue.pass_over(*line.queue.next(line.accounts));
  EXPECT_EQ(line.start(), 2u);
}

// Against the plain definition: a walk over everybody.
TEST(WaitingQueue, ChoosesAsAWalkOverAllWould) {
  rc::check([] {
    Line line;
    struct One {
      RequestId id;
      int32_t tenant, priority;
    };
    std::vector<One> all;
    const auto count = *rc::gen::inRange(1, 30);
    const char* names[] = {"a", "b", "c"};
    for (RequestId id = 1; id <= static_cast<RequestId>(count); ++id) {
      const char* tenant = names[*rc::gen::inRange(0, 3)];
      const auto priority = *rc::gen::inRange(0, 3);
      line.push(id, tenant, priority);
      all.push_back({id, line.queue.find(id)->tenant, priority});
      line.accounts.charge(all.back().tenant, *rc::gen::inRange(0, 50));
    }
    while (!all.empty()) {
      const auto best = std::min_element(all.begin(), all.end(), [&](const One& a, const One& b) {
        const auto key = [&](const One& one) { return std::tuple(-one.priority, line.accounts.tokens(one.tenant), one.id); };
        return key(a) < key(b);
      });
      RC_ASSERT(line.start() == best->id);
      line.accounts.charge(best->tenant, *rc::gen::inRange(0, 50));
      all.erase(best);
    }
    RC_ASSERT(line.start() == 0u);
  });
}

}  // namespace
}  // namespace deepinfer
