// What the prefix cache does to answers: nothing. Conversations, branches and crowded pools give the bytes of a cold engine
// (kv_cache.md section 9, rules 2, 5, 6 and 7), and usage says what was reused.
#include <gtest/gtest.h>

#include "tests/store_lives.h"

namespace deepinfer {
namespace {

// One engine whose cache lives over several requests.
using World = Life;

constexpr ReplayMode kExactModes[] = {ReplayMode::kOff, ReplayMode::kDecoder};
constexpr int64_t kContext = 1024;

EngineOptions roomy(ReplayMode mode) { return {.context = kContext, .pages = 64, .replay = mode}; }

EngineOptions cold(EngineOptions options) {
  options.prefix_cache = false;
  return options;
}

// Turns of a conversation: each prompt is the one before, its answer and something new.
TEST(PrefixCache, AConversationGivesTheBytesOfAColdEngine) {
  for (const ReplayMode mode : kExactModes) {
    World warm("cpu", roomy(mode)), fresh("cpu", cold(roomy(mode)));
    std::mt19937 random(7);
    std::vector<TokenId> history = random_tokens(random, 200);
    for (int turn = 0; turn < 4; ++turn) {
      const Request request = request_of(history, 40, static_cast<uint64_t>(turn));
      const Served hit = warm.ask(request), miss = fresh.ask(request);
      ASSERT_EQ(hit.answer, miss.answer) << replay_mode_name(mode) << ", turn " << turn;
      EXPECT_EQ(miss.usage.cached_tokens, 0);
      if (turn > 0) {
        EXPECT_GE(hit.usage.cached_tokens, static_cast<int64_t>(history.size()) / 64 * 64 - 192);
        EXPECT_LT(hit.usage.cached_tokens, static_cast<int64_t>(history.size()));
      }
      history.insert(history.end(), hit.answer.tokens.begin(), hit.answer.tokens.end());
      const auto more = random_tokens(random, 5 + static_cast<int32_t>(random() % 90));
      history.insert(history.end(), more.begin(), more.end());
    }
    EXPECT_GT(warm.engine().stats().prefix.hit_tokens, 0);
  }
}

// Late turns resume close to their end: at most R + W + a page and the new tokens are computed.
TEST(PrefixCache, ALongConversationResumesFromASnapshot) {
  World warm("cpu", roomy(ReplayMode::kDecoder));
  std::mt19937 random(8);
  std::vector<TokenId> history = random_tokens(random, 640);
  warm.ask(request_of(history, 20));
  const auto more = random_tokens(random, 10);
  history.insert(history.end(), more.begin(), more.end());
  const Served hit = warm.ask(request_of(history, 4));
  const int64_t window = shipped().shape.window;
  EXPECT_EQ(hit.usage.cached_tokens, 640);
  EXPECT_LE(hit.usage.replayed_tokens, 2 * window + 63);
}

TEST(PrefixCache, APromptThatIsCachedWholeWorks) {
  for (const ReplayMode mode : kExactModes) {
    for (const int32_t length : {1, 64, 65, 320}) {
      World warm("cpu", roomy(mode));
      std::mt19937 random(static_cast<uint32_t>(length));
      const Request request = request_of(random_tokens(random, length), 70);
      const Served first = warm.ask(request), second = warm.ask(request);
      ASSERT_EQ(first.answer, second.answer) << replay_mode_name(mode) << ", " << length << " tokens";
      EXPECT_EQ(second.usage.cached_tokens, (length - 1) / 64 * 64);
    }
  }
}

// What was generated is published as a prompt is: whoever begins with it up to any page border has all of its pages.
TEST(PrefixCache, GeneratedPagesAreHitAtAnyBorder) {
  for (const char* device : {"cpu", "delayed"}) {
    World warm(device, roomy(ReplayMode::kDecoder)), fresh("cpu", cold(roomy(ReplayMode::kDecoder)));
    std::mt19937 random(14);
    std::vector<TokenId> history = random_tokens(random, 70);
    const Request first = request_of(history, 330);
    const auto said = warm.ask(first).answer.tokens;
    history.insert(history.end(), said.begin(), said.end());
    ASSERT_GT(history.size(), 330u) << "an answer that ends early shows nothing";
    for (int32_t border = static_cast<int32_t>(history.size()) / 64 * 64; border > 0; border -= 64) {
      std::vector<TokenId> prompt(history.begin(), history.begin() + border);
      prompt.push_back(9 + border);  // not what followed
      const Request request = request_of(prompt, 3);
      const Served hit = warm.ask(request);
      ASSERT_EQ(hit.answer, fresh.ask(request).answer) << device << ", border " << border;
      EXPECT_EQ(hit.usage.cached_tokens, border) << device;
    }
  }
}

TEST(PrefixCache, BranchesShareWhatComesBefore) {
  World warm("cpu", roomy(ReplayMode::kDecoder)), fresh("cpu", cold(roomy(ReplayMode::kDecoder)));
  std::mt19937 random(9);
  const auto trunk = random_tokens(random, 500);
  for (int branch = 0; branch < 4; ++branch) {
    std::vector<TokenId> prompt(trunk.begin(), trunk.begin() + 100 + static_cast<int32_t>(random() % 400));
    const auto own = random_tokens(random, 100);
    prompt.insert(prompt.end(), own.begin(), own.end());
    const Request request = request_of(prompt, 30);
    ASSERT_EQ(warm.ask(request).answer, fresh.ask(request).answer) << "branch " << branch;
  }
}

// A prompt that is left in the middle: from a state kept there only the windows run again.
TEST(PrefixCache, StatesAreKeptAtIntervalsWhereThatIsWanted) {
  std::mt19937 random(15);
  const auto trunk = random_tokens(random, 900);
  std::vector<TokenId> prompt(trunk.begin(), trunk.begin() + 600);
  prompt.push_back(9);
  int64_t replayed[2] = {};
  World fresh("cpu", cold(roomy(ReplayMode::kDecoder)));
  for (const bool wanted : {false, true}) {
    EngineOptions options = roomy(ReplayMode::kDecoder);
    options.snapshot_every = wanted ? 100 : 0;  // 128: in whole pages
    options.snapshot_bytes = 64 << 20;
    World world("cpu", options);
    world.ask(request_of(trunk, 2));
    const Served hit = world.ask(request_of(prompt, 6));
    ASSERT_EQ(hit.answer, fresh.ask(request_of(prompt, 6)).answer);
    EXPECT_EQ(hit.usage.cached_tokens, 576);
    replayed[wanted] = hit.usage.replayed_tokens;
  }
  EXPECT_EQ(replayed[0], 576);        // too short for a replay
  EXPECT_EQ(replayed[1], 576 - 256);  // N - R - (W - 1) = 346: the state at 256
}

TEST(PrefixCache, TenantsDoNotShare) {
  World world("cpu", roomy(ReplayMode::kDecoder));
  std::mt19937 random(10);
  Request request = request_of(random_tokens(random, 300), 3);
  request.tenant = "a";
  world.ask(request);
  EXPECT_EQ(world.ask(request).usage.cached_tokens, 256);
  request.tenant = "b";
  EXPECT_EQ(world.ask(request).usage.cached_tokens, 0);
}

TEST(PrefixCache, ParallelRequestsComputeAPrefixOnce) {
  World world("cpu", roomy(ReplayMode::kDecoder));
  std::mt19937 random(11);
  const auto prefix = random_tokens(random, 512);
  std::vector<RequestId> ids;
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt = prefix;
    prompt.push_back(10 + i);
    requests.push_back(request_of(prompt, 8));
    ids.push_back(submit_patiently(world.engine(), requests.back(), world.seen().handler()));
  }
  run_until_idle(world.engine());
  EXPECT_EQ(world.engine().stats().prefix.hit_tokens, 5 * 512);
  World fresh("cpu", cold(roomy(ReplayMode::kDecoder)));
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(world.seen()[ids[i]], fresh.ask(requests[i]).answer) << i;
}

// Pools that hold a fraction of what is asked for: eviction, preemption and resumption everywhere, same bytes.
TEST(PrefixCache, CrowdedPoolsGiveTheSameBytes) {
  for (const ReplayMode mode : kExactModes) {
    std::mt19937 random(12);
    std::vector<Request> requests;
    const auto trunk = random_tokens(random, 400);
    for (int i = 0; i < 10; ++i) {
      std::vector<TokenId> prompt(trunk.begin(), trunk.begin() + static_cast<int32_t>(random() % 250));
      const auto own = random_tokens(random, 1 + static_cast<int32_t>(random() % 120));
      prompt.insert(prompt.end(), own.begin(), own.end());
      Request request = request_of(prompt, 60 + static_cast<int32_t>(random() % 80), random());
      request.priority = static_cast<int32_t>(random() % 2);
      requests.push_back(request);
    }
    World fresh("cpu", cold(roomy(mode)));
    for (const char* device : {"cpu", "delayed"}) {
      World crowded(device,
                    {.max_batch = 6, .step_tokens = 70, .context = kContext, .pages = 11, .replay = mode, .snapshot_bytes = 1});
      std::vector<RequestId> ids;
      for (const Request& request : requests) {
        ids.push_back(submit_patiently(crowded.engine(), request, crowded.seen().handler()));
      }
      run_until_idle(crowded.engine());
      expect_all_free(crowded.engine());
      EXPECT_GT(crowded.engine().stats().preempted, 0);
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(crowded.seen()[ids[i]], fresh.ask(requests[i]).answer) << device << ", " << replay_mode_name(mode) << ", " << i;
      }
    }
  }
}

// Approximate by design, but a hit with a snapshot or a short prompt is exact in this mode, too.
TEST(PrefixCache, FullReplayAnswersAndReportsWhatItReplayed) {
  World world("cpu", roomy(ReplayMode::kFull));
  std::mt19937 random(13);
  std::vector<TokenId> prompt = random_tokens(random, 400);
  world.ask(request_of(prompt, 2));
  prompt.resize(260);
  prompt.push_back(4);
  const Served hit = world.ask(request_of(prompt, 8));
  EXPECT_EQ(hit.answer.finals, 1);
  EXPECT_NE(hit.answer.finish, FinishReason::kError) << hit.answer.error;
  EXPECT_EQ(hit.usage.cached_tokens, 256);
  EXPECT_LE(hit.usage.replayed_tokens, shipped().shape.window);
}

}  // namespace
}  // namespace deepinfer
