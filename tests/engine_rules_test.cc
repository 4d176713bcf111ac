// The rules of oracle_rules.md that concern the engine, one property each, over generated worlds: batch, chunks, pool, cache,
// replay, speculation and device differ, the requests are the same. tests/rule_cases.h says how many cases.
#include <gtest/gtest.h>

#include <algorithm>

#include "kvcache/tiers/memory_disk_fixture.h"
#include "model/scripted_model.h"
#include "tests/rule_cases.h"
#include "tests/speculation_harness.h"

namespace deepinfer {
namespace {

constexpr int32_t kVocab = 67;
constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 128, "page_tokens": 16, "window": 16}
{"hash": {"tokens": 100, "seed": 9}})";
// Two steps fail, and one gives no numbers.
constexpr const char* kFaultyScript =
    R"({"scripted": 1, "vocab": 67, "context": 128, "page_tokens": 16, "window": 16, "faults": [{"step": 9, "kind": "error"}, {"step": 14, "kind": "nan"}, {"step": 25, "kind": "error"}]}
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
  int64_t steps = 0;  // until the first token
  int finals = 0;
};

class EngineRules : public ::testing::Test {
 protected:
  // A world of the generator.
  EngineOptions world(uint32_t seed, bool ample = false) {
    std::mt19937 random(seed * 977u);
    const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
    EngineOptions options{.max_batch = 1 + below(6), .queue_limit = 64, .context = 128};
    options.step_tokens = options.max_batch + below(40);
    // From one longest request to plenty.
    options.pages = ample ? 256 : 8 + below(3) * below(12);
    options.prefix_cache = below(4) != 0;
    options.snapshot_bytes = below(2) == 0 && !ample ? 1 : 1 << 24;
    options.replay = below(2) == 0 ? ReplayMode::kOff : ReplayMode::kDecoder;
    engine_.reset();  // before its drafter goes
    drafter_ = std::make_unique<OracleDrafter>(
        std::vector<uint32_t>{static_cast<uint32_t>(random() % 32), static_cast<uint32_t>(random() % 32)});
    options.speculation.mode = below(3) == 0 ? SpeculationMode::kOff : SpeculationMode::kOn;
    options.speculation.max_draft = 1 + below(5);
    options.speculation.schedule = SpeculationSchedule::kFixed;
    options.speculation.drafter = drafter_.get();
    options.clock = &clock_;
    device_name_ = below(2) == 0 ? "cpu" : "delayed";
    return options;
  }
  void open(const EngineOptions& options, const LanguageModel& model) {
    engine_.reset();
    device_ = device_named(device_name_, 1);
    engine_ = value(Engine::create(*device_, model, options));
  }
  void open(const EngineOptions& options) { open(options, model_); }
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
      seen.prefix = event.report->prefix.value_or(PrefixVerdict()), seen.steps = event.report->trace.prefill_steps;
    };
  }
  std::vector<Seen> answer(const std::vector<Request>& list) {
    std::vector<Seen> out(list.size());
    for (size_t i = 0; i < list.size(); ++i) submit_patiently(*engine_, list[i], into(out[i]));
    run_until_idle(*engine_);
    return out;
  }

  const char* device_name_ = "cpu";
  std::unique_ptr<Device> device_;
  ScriptedModel model_{value(parse_script(kScript, "rules"))};
  ScriptedModel faulty_{value(parse_script(kFaultyScript, "faulty"))};
  ManualClock clock_;
  std::unique_ptr<OracleDrafter> drafter_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineRules, R2ThePathDoesNotMatter) {
  for_each_case([&](uint32_t seed) {
    const auto list = requests(seed);
    open_plain();
    const auto want = answer(list);
    open(world(seed));
    for (int round = 0; round < 2; ++round) {  // cold, then with whatever the cache has kept
      const auto got = answer(list);
      for (size_t i = 0; i < list.size(); ++i) {
        ASSERT_EQ(got[i].tokens, want[i].tokens) << "round " << round << ", request " << i;
        ASSERT_EQ(got[i].logprobs, want[i].logprobs) << "round " << round << ", request " << i;
        ASSERT_EQ(got[i].finish, want[i].finish);
      }
    }
  });
}

TEST_F(EngineRules, R3UsageAddsUp) {
  for_each_case([&](uint32_t seed) {
    const auto list = requests(seed);
    open(world(seed));
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
    open(world(seed));
    const auto second = answer(list);
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(second[i].usage.cached_tokens, first[i].usage.cached_tokens) << "request " << i;
      ASSERT_EQ(second[i].usage.replayed_tokens, first[i].usage.replayed_tokens);
    }
  });
}

// R4 nothing leaks, R5 one end each: cancels, early ends, deadlines and steps that fail at any moment, refusals, submits in
// between, an engine that is stopped.
TEST_F(EngineRules, R4NothingLeaksAndR5OneEndEach) {
  for_each_case([&](uint32_t seed) {
    std::mt19937 random(seed);
    const bool faults = random() % 4 == 0;
    open(world(seed), faults ? faulty_ : model_);
    auto list = requests(seed + 400, 20);
    std::vector<Seen> seen(list.size());
    std::vector<RequestId> ids;
    for (size_t i = 0; i < list.size(); ++i) {
      if (random() % 4 == 0) list[i].deadline_us = clock_.now_us() + 1 + static_cast<int64_t>(random() % 40);
      Request never = list[i];
      never.prompt.resize(random() % 2 == 0 ? 0 : 500, 5);
      ASSERT_EQ(engine_->submit(never, [](const Event&) { ADD_FAILURE() << "refused, and told of"; }).ok(), false);
      ids.push_back(submit_patiently(*engine_, list[i], into(seen[i])));
      for (uint32_t steps = random() % 4; steps > 0; --steps) engine_->step(), clock_.advance_us(random() % 10);
      const RequestId some = ids[random() % ids.size()];
      if (random() % 3 == 0) engine_->cancel(some);
      if (random() % 3 == 0) engine_->finish(some, static_cast<int64_t>(random() % 10) - 1);
    }
    if (seed % 7 == 0) {
      engine_->stop();
    } else {
      run_until_idle(*engine_);
    }
    for (const Seen& one : seen) {
      ASSERT_EQ(one.finals, 1);
      if (!faults) {
        ASSERT_NE(one.finish, FinishReason::kError) << one.error;
      }
      ASSERT_LE(one.usage.completion_tokens, static_cast<int64_t>(one.tokens.size()));
    }
    expect_all_free(*engine_);
  });
}

// The matcher has seen the answer and nothing else, whatever was drafted; what it forbids never comes.
TEST_F(EngineRules, R7TheMatcherFollowsTheAnswer) {
  for_each_case([&](uint32_t seed) {
    open(world(seed));
    const auto list = requests(seed + 700, 4);
    std::vector<Seen> seen(list.size());
    std::vector<std::vector<TokenId>> followed(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      value(engine_->submit(list[i], into(seen[i]), std::make_unique<ThirdsMask>(&followed[i])));
    }
    run_until_idle(*engine_);
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(followed[i], seen[i].tokens) << "request " << i;
      for (const TokenId token : seen[i].tokens) ASSERT_TRUE(ThirdsMask::allows(token));
      ASSERT_NE(seen[i].finish, FinishReason::kError) << seen[i].error;
    }
  });
}

// What tenant b can see does not depend on what a does, as long as there is room for both: not in memory, not on the disk, not
// after a restart, and its first tokens take as many steps.
TEST_F(EngineRules, R9TenantsAreAlone) {
  const DateClock date;
  for_each_case([&](uint32_t seed) {
    auto of_b = requests(seed + 900);
    for (Request& request : of_b) request.tenant = "b";
    const auto watch = [&](bool company) {
      MemoryDisk disk;
      EngineOptions options = world(seed, true);
      std::mt19937 random(seed);
      const bool stores = options.prefix_cache && random() % 3 == 0;
      if (stores) {
        options.store = {.disk = &disk, .date = &date, .folder = "/store", .fingerprint = "rules"};
        options.store.deadline.base_us = 60'000'000;
      }
      open(options);
      std::vector<Seen> out;
      for (size_t i = 0; i < of_b.size(); ++i) {
        if (company) {
          // The same prompts and others, before b has sent them.
          Request stolen = of_b[i];
          stolen.tenant = "a";
          answer({stolen, requests(seed)[i]});
        }
        // A restart; with a store always, because what loads cost is measured, and what was not measured is tried.
        if (stores || random() % 3 == 0) open(options);
        out.push_back(answer({of_b[i]})[0]);
      }
      engine_.reset();  // before its disk goes
      return out;
    };
    const auto alone = watch(false), beside = watch(true);
    for (size_t i = 0; i < of_b.size(); ++i) {
      ASSERT_EQ(beside[i].tokens, alone[i].tokens) << "request " << i;
      ASSERT_EQ(beside[i].usage.cached_tokens, alone[i].usage.cached_tokens) << "request " << i;
      ASSERT_EQ(beside[i].usage.replayed_tokens, alone[i].usage.replayed_tokens);
      ASSERT_EQ(beside[i].steps, alone[i].steps) << "request " << i;
      ASSERT_EQ(beside[i].prefix.reason, alone[i].prefix.reason);
      ASSERT_EQ(beside[i].prefix.loaded_tokens, alone[i].prefix.loaded_tokens);
      ASSERT_EQ(beside[i].prefix.first_different, alone[i].prefix.first_different);
      ASSERT_TRUE(std::ranges::equal(beside[i].prefix.there.span(), alone[i].prefix.there.span()));
    }
  });
}

}  // namespace
}  // namespace deepinfer
