// Whatever a request asks for and whatever world it runs in, speculation changes none of its bytes: random combinations of prefix
// hits, chunks, preemption, penalties, logprobs, stop tokens, early ends, several answers of one prompt, masks that hold at once
// or from a token on, every schedule, steps in flight, right, wrong and real drafts; compared with speculation off, alone. The
// same holds for any number of ranks, with and without drafts.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "model/config.h"
#include "model/random_checkpoint.h"
#include "model/scripted_model.h"
#include "model/v41_model.h"
#include "tests/ranks_harness.h"
#include "tests/speculation_harness.h"

namespace deepinfer {
namespace {

constexpr int32_t kVocab = 67;
constexpr int64_t kContext = 192;
constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 192, "page_tokens": 16, "window": 16}
{"hash": {"tokens": 190, "seed": 11}})";
constexpr const char* kSmallest =
    "v41?layers=7&hidden=32&heads=2&head_dim=32&rope=8&q_rank=32&o_rank=16&o_groups=2&experts=4&top_k=2&expert_hidden=32&draft=2&"
    "window=24&vocab=67&index_heads=2&index_dim=32&index_topk=8&candidate_blocks=4&candidate_block=4&engram_rows=200&"
    "engram_heads=2&engram_dim=32&markov_rank=8&context=4096";

// What is allowed follows from what was accepted: a state that is off by one shows at once.
class SumMask final : public TokenMask {
 public:
  MaskFill fill(std::span<uint32_t> words, const MaskDeadline&) const override {
    std::ranges::fill(words, 0u);
    for (int32_t token = 0; token < kVocab; ++token) {
      if (allows(token)) words[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
    }
    return MaskFill::kReady;
  }
  bool accept(TokenId token) override {
    if (!allows(token)) return false;
    accepted_.push_back(token);
    return true;
  }
  void rollback(int32_t count) override { accepted_.resize(accepted_.size() - static_cast<size_t>(count)); }
  bool complete() const override { return true; }

 private:
  bool allows(TokenId token) const {
    int32_t sum = static_cast<int32_t>(accepted_.size());
    for (const TokenId before : accepted_) sum += before;
    return (token + sum) % 3 != 0;
  }
  std::vector<TokenId> accepted_;
};

// A request and what its client does.
struct Case {
  Request request;
  bool masked = false;
  int32_t ends_at = 0;  // the client ends the answer at the first token that this divides, as with a stop string; 0 = never
};

std::vector<Case> random_cases(std::mt19937& random) {
  const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
  std::vector<Case> out;
  for (int32_t i = 0; i < 2 + below(5); ++i) {
    Case one{mixed_request(random, kVocab, 1 + below(120), 1 + below(40))};
    Request& request = one.request;
    for (size_t k = 0; below(2) == 0 && k < std::min<size_t>(70, request.prompt.size()); ++k) request.prompt[k] = 5;
    // Several answers of one prompt.
    if (i > 0 && below(3) == 0) request.prompt = out.back().request.prompt;
    if (below(2) == 0) request.stop_ids.push_back(3 + below(kVocab - 3));
    if (below(4) == 0) request.speculation.max_draft = below(4);
    request.priority = below(2);
    one.masked = below(3) == 0;
    if (one.masked && below(2) == 0) request.constraint.begins_after = 3 + below(kVocab - 3);
    if (below(4) == 0) one.ends_at = 5 + below(9);
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<Answer> answer(Engine& engine, const std::vector<Case>& cases, bool together, bool disturbed = false) {
  Recorder seen;
  std::vector<RequestId> ids;
  for (const Case& one : cases) {
    const EventHandler record = seen.handler();
    const EventHandler handler = [&engine, record, ends_at = one.ends_at](const Event& event) {
      record(event);
      if (event.token && ends_at > 0 && *event.token % ends_at == 0) engine.finish(event.request, event.index);
    };
    ids.push_back(value(engine.submit(one.request, handler, one.masked ? std::make_unique<SumMask>() : nullptr)));
    if (disturbed) {
      const EventHandler leave = [&engine](const Event& event) {
        if (event.token && event.index == 1) engine.cancel(event.request);
      };
      value(engine.submit(one.request, leave, one.masked ? std::make_unique<SumMask>() : nullptr));
    }
    if (!together) run_until_idle(engine);
  }
  run_until_idle(engine);
  expect_all_free(engine);
  std::vector<Answer> out;
  for (const RequestId id : ids) out.push_back(seen[id]);
  return out;
}

// The models on both devices.
class Worlds {
 public:
  Worlds() {
    ThreadPool pool(1);
    V41Options small{.name = "small", .page_tokens = 16};  // as the script's: pools of twelve are crowded
    small.shape = value(parse_random_spec(kSmallest)).shape;
    for (int32_t token = 0; token < kVocab; ++token) small.token_map.push_back(token);
    small.weights = value(bind_weights(value(make_random_checkpoint(kSmallest, pool)), small.shape));
    for (const auto& device : devices_) small_.push_back(value(V41Model::create(*device, small)));
    for (const int32_t ranks : {2, 4, 8}) ranked_.push_back(over_ranks(*small_[0], ranks));
  }
  // One over a random number of ranks, in a random world.
  std::unique_ptr<Engine> ranked(std::mt19937& random, const Drafter* drafter) const {
    EngineOptions options{.context = kContext};
    vary(options, random, drafter);
    options.max_batch += static_cast<int32_t>(random() % 6), options.step_tokens += options.max_batch;
    if (random() % 4 == 0) options.speculation.mode = SpeculationMode::kOff;
    return value(Engine::create(*devices_[0], *ranked_[random() % ranked_.size()], options));
  }
  // An engine of a random world, or the plain one.
  std::unique_ptr<Engine> engine(bool real, std::mt19937* random, const Drafter* drafter) const {
    EngineOptions options{.max_batch = 1, .step_tokens = 64, .queue_limit = 64, .context = kContext, .pages = 12};
    options.prefix_cache = random != nullptr;
    options.speculation = kSpeculationOff;
    if (random) vary(options, *random, drafter);
    const size_t device = random ? (*random)() % 2 : 0;
    const LanguageModel& model = real ? static_cast<const LanguageModel&>(*small_[device]) : scripted_;
    return value(Engine::create(*devices_[device], model, options));
  }

 private:
  static void vary(EngineOptions& options, std::mt19937& random, const Drafter* drafter) {
    const auto below = [&](uint32_t limit) { return static_cast<int32_t>(random() % limit); };
    options.max_batch = 1 + below(6);
    options.step_tokens = options.max_batch + below(48);
    options.queue_limit = 16;
    options.pages = 12 + below(2) * below(40);
    options.prefix_cache = below(4) != 0;
    options.snapshot_bytes = below(2) == 0 ? 1 : 1 << 24;
    options.replay = ReplayMode::kDecoder;
    options.overlap = below(2) == 0 ? OverlapMode::kOn : OverlapMode::kAuto;
    options.speculation = {.mode = below(4) == 0 ? SpeculationMode::kAuto : SpeculationMode::kOn,
                           .max_draft = 1 + below(5),
                           .schedule = static_cast<SpeculationSchedule>(below(3)),
                           .lag = 1 + below(2),
                           .drafter = drafter};
  }

  std::vector<std::unique_ptr<Device>> devices_ = [] {
    std::vector<std::unique_ptr<Device>> list;
    list.push_back(device_named("cpu", 1));
    list.push_back(device_named("delayed", 1));
    return list;
  }();
  ScriptedModel scripted_{value(parse_script(kScript, "property"))};
  std::vector<std::unique_ptr<V41Model>> small_;
  std::vector<std::unique_ptr<RankedModel>> ranked_;
};

// Whether the answers of random requests in a random world, over ranks or not, are those alone; adds what happened.
bool same_answers(const Worlds& worlds, uint32_t seed, bool ranked, EngineStats& all) {
  std::mt19937 random(seed);
  const bool real = ranked || random() % 2 == 0, own = real && random() % 2 == 0;
  const std::vector<Case> cases = random_cases(random);
  const std::vector<Answer> alone = answer(*worlds.engine(real, nullptr, nullptr), cases, false);
  OracleDrafter oracle({static_cast<uint32_t>(random() % 32), static_cast<uint32_t>(random() % 32), 0x1f}, 5, random() % 4 != 0);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Request& request = cases[i].request;
    oracle.learn(*request.sampling.seed, static_cast<int64_t>(request.prompt.size()), alone[i].tokens);
  }
  const Drafter* const drafter = own ? nullptr : &oracle;
  const auto engine = ranked ? worlds.ranked(random, drafter) : worlds.engine(real, &random, drafter);
  bool same = true;
  for (int round = 0; round < 2; ++round) {  // cold, then with what the cache kept
    same &= answer(*engine, cases, true, ranked && random() % 2 == 0) == alone;
  }
  const EngineStats stats = engine->stats();
  all.preempted += stats.preempted, all.prefix.hit_tokens += stats.prefix.hit_tokens;
  for (size_t r = 0; r < all.ranks.work.size(); ++r) all.ranks.work[r] += stats.ranks.work[r];
  for (size_t k = 0; k < kMaxDraft; ++k) {
    const SpeculationStats& drafts = stats.speculation;
    same &= drafts.accepted[k] <= drafts.verified[k] && drafts.verified[k] <= drafts.drafted[k];
    all.speculation.verified[k] += drafts.verified[k], all.speculation.accepted[k] += drafts.accepted[k];
  }
  return same;
}

TEST(SpeculationProperty, NoCombinationChangesAByte) {
  const Worlds worlds;
  EngineStats all;
  EXPECT_TRUE(rc::check("the answers are those without speculation, alone",
                        [&](uint32_t seed) { RC_ASSERT(same_answers(worlds, seed, false, all)); }));
  // The cases have what they are about.
  EXPECT_GT(all.preempted, 0);
  EXPECT_GT(all.prefix.hit_tokens, 0);
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_GT(all.speculation.accepted[k], 0);
    EXPECT_GT(all.speculation.verified[k], all.speculation.accepted[k]);
  }
}

// The same cases every time, and few: eight ranks on two processors meet slowly.
TEST(RanksProperty, NoNumberOfRanksChangesAByte) {
  const Worlds worlds;
  EngineStats all;
  for (uint32_t seed = 1; seed <= 20; ++seed) EXPECT_TRUE(same_answers(worlds, seed, true, all)) << "seed " << seed;
  EXPECT_GT(all.preempted, 0);
  EXPECT_GT(all.prefix.hit_tokens, 0);
  EXPECT_GT(sum(all.speculation.accepted), 0);
  for (size_t r = 0; r < 4; ++r) EXPECT_GT(all.ranks.work[r], 0) << "rank " << r << " had nothing to do";
}

}  // namespace
}  // namespace deepinfer
