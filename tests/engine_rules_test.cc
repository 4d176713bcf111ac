// The rules of oracle_rules.md that concern the engine, one property each, over generated worlds: batch, chunks, pool, cache,
// replay, speculation and device differ, the requests are the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/scripted_model.h"
#include "tests/speculation_harness.h"

namespace deepinfer {
namespace {

constexpr int kCases = 200;
constexpr int32_t kVocab = 67;
constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 128, "page_tokens": 16, "window": 16}
{"hash": {"tokens": 100, "seed": 9}})";

// Any token but every third, so that a model that does not listen would be caught. Notes what it was told.
class ThirdsMask final : public TokenMask {
 public:
  explicit ThirdsMask(std::vector<TokenId>* followed) : followed_(followed) {}
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    std::ranges::fill(words, 0u);
    for (int32_t token = 0; token < kVocab; ++token) {
      if (allows(token)) words[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
    }
    return MaskFill::kReady;
  }
  bool accept(TokenId token) override {
    if (!allows(token)) return false;
    followed_->push_back(token);
    return true;
  }
  void rollback(int32_t count) override { followed_->resize(followed_->size() - static_cast<size_t>(count)); }
  bool complete() const override { return true; }
  static bool allows(TokenId token) { return token % 3 != 0; }

 private:
  std::vector<TokenId>* followed_;
};

struct Seen {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kNone;
  std::string error;
  Usage usage;
  PrefixVerdict prefix;
  int finals = 0;
  int64_t shown = 0;
};

class EngineRules : public ::testing::Test {
 protected:
  // A world of the generator. Case 0 is the plain one.
  void open(int which, uint32_t seed, bool ample = false) {
    std::mt19937 random(seed * 977u + static_cast<uint32_t>(which));
    const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
    EngineOptions options{.max_batch = 1 + below(6), .queue_limit = 64, .context = 128};
    options.step_tokens = options.max_batch + below(40);
    // From one longest request to plenty.
    options.pages = ample ? 256 : 8 + below(3) * below(12);
    options.prefix_cache = below(4) != 0;
    options.snapshot_bytes = below(2) == 0 && !ample ? 1 : 1 << 24;
    options.replay = below(2) == 0 ? ReplayMode::kOff : ReplayMode::kDecoder;
    drafter_ = std::make_unique<OracleDrafter>(
        std::vector<uint32_t>{static_cast<uint32_t>(random() % 32), static_cast<uint32_t>(random() % 32)});
    options.speculation.mode = below(3) == 0 ? SpeculationMode::kOff : SpeculationMode::kOn;
    options.speculation.max_draft = 1 + below(5);
    options.speculation.schedule = SpeculationSchedule::kFixed;
    options.speculation.drafter = drafter_.get();
    engine_.reset();
    device_ = device_named(below(2) == 0 ? "cpu" : "delayed", 1);
    engine_ = value(Engine::create(*device_, model_, options));
  }
  void open_plain() {
    engine_.reset();
    device_ = device_named("cpu", 1);
    engine_ = value(Engine::create(
        *device_, model_,
        {.max_batch = 1, .step_tokens = 64, .context = 128, .pages = 8, .prefix_cache = false, .speculation = kSpeculationOff}));
  }

  static std::vector<Request> requests(uint32_t seed, int32_t count = 6) {
    std::mt19937 random(seed);
    std::vector<Request> out;
    for (int32_t i = 0; i < count; ++i) {
      Request request =
          mixed_request(random, kVocab, 1 + static_cast<int32_t>(random() % 60), 1 + static_cast<int32_t>(random() % 30));
      // Half of them begin alike.
      for (size_t k = 0; i % 2 == 0 && k < std::min<size_t>(40, request.prompt.size()); ++k) request.prompt[k] = 5;
      request.sampling.num_logprobs = 0;
      request.priority = static_cast<int32_t>(random() % 2);
      out.push_back(std::move(request));
    }
    return out;
  }

  EventHandler into(Seen& seen) {
    return [&seen](const Event& event) {
      if (event.token) {
        seen.tokens.push_back(*event.token);
        if (event.logprob) seen.logprobs.push_back(event.logprob->logprob);
      }
      if (event.finish == FinishReason::kNone) return;
      ++seen.finals;
      seen.finish = event.finish, seen.error = event.error, seen.usage = event.usage,
      seen.prefix = event.report->prefix.value_or(PrefixVerdict());
    };
  }
  std::vector<Seen> answer(const std::vector<Request>& list) {
    std::vector<Seen> out(list.size());
    for (size_t i = 0; i < list.size(); ++i) submit_patiently(*engine_, list[i], into(out[i]));
    run_until_idle(*engine_);
    return out;
  }

  std::unique_ptr<Device> device_;
  ScriptedModel model_{value(parse_script(kScript, "rules"))};
  std::unique_ptr<OracleDrafter> drafter_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineRules, R2ThePathDoesNotMatter) {
  const auto list = requests(2);
  open_plain();
  const auto want = answer(list);
  for (int which = 0; which < kCases; ++which) {
    open(which, 2);
    for (int round = 0; round < 2; ++round) {  // cold, then with whatever the cache has kept
      const auto got = answer(list);
      for (size_t i = 0; i < list.size(); ++i) {
        ASSERT_EQ(got[i].tokens, want[i].tokens) << "world " << which << ", round " << round << ", request " << i;
        ASSERT_EQ(got[i].logprobs, want[i].logprobs) << "world " << which << ", round " << round << ", request " << i;
        ASSERT_EQ(got[i].finish, want[i].finish);
      }
    }
  }
}

TEST_F(EngineRules, R3UsageAddsUp) {
  for (int which = 0; which < kCases; ++which) {
    const auto list = requests(static_cast<uint32_t>(300 + which));
    open(which, 3);
    const auto first = answer(list);
    int64_t prompt = 0, completion = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const Usage& usage = first[i].usage;
      ASSERT_EQ(usage.prompt_tokens, static_cast<int64_t>(list[i].prompt.size()));
      ASSERT_GE(usage.cached_tokens, 0);
      ASSERT_LT(usage.cached_tokens, usage.prompt_tokens);
      ASSERT_GE(usage.replayed_tokens, 0);
      ASSERT_LE(usage.replayed_tokens, usage.cached_tokens);
      ASSERT_EQ(usage.completion_tokens, static_cast<int64_t>(first[i].tokens.size()));
      ASSERT_LE(usage.accepted_tokens, usage.drafted_tokens);
      ASSERT_LE(usage.accepted_tokens, usage.completion_tokens);
      ASSERT_EQ(first[i].prefix.cached_tokens, usage.cached_tokens);
      ASSERT_EQ(first[i].prefix.replayed_tokens, usage.replayed_tokens);
      prompt += usage.prompt_tokens, completion += usage.completion_tokens;
    }
    ASSERT_EQ(engine_->stats().prompt_tokens, prompt);
    ASSERT_EQ(engine_->stats().completion_tokens, completion);
    // In the same state of the cache the same request has the same usage.
    open(which, 3);
    const auto second = answer(list);
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(second[i].usage.cached_tokens, first[i].usage.cached_tokens) << "world " << which << ", request " << i;
      ASSERT_EQ(second[i].usage.replayed_tokens, first[i].usage.replayed_tokens);
    }
  }
}

// R4 nothing leaks, R5 one end each: cancels and early ends at any moment, submits in between.
TEST_F(EngineRules, R4NothingLeaksAndR5OneEndEach) {
  for (int which = 0; which < kCases; ++which) {
    open(which, 4);
    std::mt19937 random(static_cast<uint32_t>(which));
    const auto list = requests(static_cast<uint32_t>(400 + which), 10);
    std::vector<Seen> seen(list.size());
    std::vector<RequestId> ids;
    for (size_t i = 0; i < list.size(); ++i) {
      ids.push_back(submit_patiently(*engine_, list[i], into(seen[i])));
      for (uint32_t steps = random() % 4; steps > 0; --steps) engine_->step();
      const RequestId some = ids[random() % ids.size()];
      if (random() % 3 == 0) engine_->cancel(some);
      if (random() % 3 == 0) engine_->finish(some, static_cast<int64_t>(random() % 10) - 1);
    }
    if (which % 7 == 0) {
      engine_->stop();
    } else {
      run_until_idle(*engine_);
    }
    for (const Seen& one : seen) {
      ASSERT_EQ(one.finals, 1) << "world " << which;
      ASSERT_NE(one.finish, FinishReason::kError) << one.error;
      ASSERT_LE(one.usage.completion_tokens, static_cast<int64_t>(one.tokens.size()));
    }
    expect_all_free(*engine_);
  }
}

// The matcher has seen the answer and nothing else, whatever was drafted; what it forbids never comes.
TEST_F(EngineRules, R7TheMatcherFollowsTheAnswer) {
  for (int which = 0; which < kCases; ++which) {
    open(which, 7);
    const auto list = requests(static_cast<uint32_t>(700 + which), 4);
    std::vector<Seen> seen(list.size());
    std::vector<std::vector<TokenId>> followed(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      value(engine_->submit(list[i], into(seen[i]), std::make_unique<ThirdsMask>(&followed[i])));
    }
    run_until_idle(*engine_);
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(followed[i], seen[i].tokens) << "world " << which << ", request " << i;
      for (const TokenId token : seen[i].tokens) ASSERT_TRUE(ThirdsMask::allows(token));
      ASSERT_NE(seen[i].finish, FinishReason::kError) << seen[i].error;
    }
  }
}

// What tenant b can see does not depend on what a does, as long as there is room for both.
TEST_F(EngineRules, R9TenantsAreAlone) {
  for (int which = 0; which < kCases; ++which) {
    auto of_b = requests(static_cast<uint32_t>(900 + which));
    for (Request& request : of_b) request.tenant = "b";
    const auto watch = [&](bool company) {
      open(which, 9, true);
      std::vector<Seen> out;
      for (size_t i = 0; i < of_b.size(); ++i) {
        if (company) {
          // The same prompts and others, before b has sent them.
          Request stolen = of_b[i];
          stolen.tenant = "a";
          answer({stolen, requests(static_cast<uint32_t>(which))[i]});
        }
        out.push_back(answer({of_b[i]})[0]);
      }
      return out;
    };
    const auto alone = watch(false), beside = watch(true);
    for (size_t i = 0; i < of_b.size(); ++i) {
      ASSERT_EQ(beside[i].tokens, alone[i].tokens) << "world " << which << ", request " << i;
      ASSERT_EQ(beside[i].usage.cached_tokens, alone[i].usage.cached_tokens) << "world " << which << ", request " << i;
      ASSERT_EQ(beside[i].usage.replayed_tokens, alone[i].usage.replayed_tokens);
      ASSERT_EQ(beside[i].prefix.reason, alone[i].prefix.reason) << "world " << which;
      ASSERT_EQ(beside[i].prefix.first_different, alone[i].prefix.first_different);
      ASSERT_TRUE(std::ranges::equal(beside[i].prefix.there.span(), alone[i].prefix.there.span()));
    }
  }
}

}  // namespace
}  // namespace deepinfer
