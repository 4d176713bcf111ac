// A row's bytes depend on its sequence alone: not on chunking, company, ranks or the device's timing (determinism.md section 2).
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <random>
#include <thread>

#include "base/file.h"
#include "cpu/cpu_device.h"
#include "cpu/delayed_device.h"
#include "lab/model_harness.h"
#include "model/config.h"
#include "parallel/thread_group.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace deepinfer {
namespace {

constexpr const char* kModelDir = DEEPINFER_SOURCE_DIR "/models/tiny-v41";

template <class T>
T value(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return *std::move(result);
}

// The shipped checkpoint, bound once and shared by all models of this file.
V41Options shipped_model() {
  static const V41Options options = [] {
    auto checkpoint = value(Checkpoint::open(kModelDir));
    V41Options out;
    out.name = kModelDir;
    out.shape = value(parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
    out.weights = value(bind_weights(checkpoint, out.shape));
    const auto tokenizer = value(Tokenizer::parse(value(read_file(join_path(kModelDir, "tokenizer.json")))));
    out.token_map = value(make_token_map(tokenizer, out.shape.vocab)).class_of;
    return out;
  }();
  return options;
}

std::vector<TokenId> random_tokens(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids(count);
  for (auto& id : ids) id = static_cast<TokenId>(3 + random() % 5000);
  return ids;
}

struct Outcome {
  std::vector<float> logits;  // of the last prompt row and of each decode step
  std::vector<uint8_t> pages;
  std::vector<uint8_t> rings;
  bool operator==(const Outcome&) const = default;
};

// Prefills `ids` in chunks cut at `cuts`, then decodes 5 fixed tokens.
Outcome prefill_in_chunks(Device& device, const V41Model& model, const std::vector<TokenId>& ids, std::vector<size_t> cuts,
                          Position replay_start) {
  auto harness = value(ModelHarness::create(device, model, {.max_rows = 512, .max_logits = 1, .max_context = 1024}));
  Outcome out;
  const auto run = [&](std::span<const TokenId> tokens, Position begin, bool last) {
    const auto status = harness->run({.tokens = tokens,
                                      .begin = begin,
                                      .decoder_begin = replay_start,
                                      .window_floor = replay_start,
                                      .num_logits = last ? 1 : 0});
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!last) return;
    const auto logits = value(harness->logits(1));
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  };
  cuts.push_back(ids.size());
  size_t begin = 0;
  for (const size_t cut : cuts) {
    run(std::span(ids).subspan(begin, cut - begin), static_cast<Position>(begin), cut == ids.size());
    begin = cut;
  }
  for (TokenId i = 0; i < 5; ++i) {
    const TokenId token = 100 + i;
    run({&token, 1}, static_cast<Position>(ids.size()) + i, true);
  }
  out.pages = value(harness->page_bytes(static_cast<int64_t>(ids.size()) + 5));
  out.rings = value(harness->state_bytes());
  out.rings.resize(static_cast<size_t>(model.layout().tails_offset));
  return out;
}

std::vector<size_t> random_cuts(size_t length, size_t largest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<size_t> cuts;
  for (size_t at = 1 + random() % largest; at < length; at += 1 + random() % largest) cuts.push_back(at);
  return cuts;
}

TEST(ModelInvariance, AnyChunkingGivesTheSameBytes) {
  auto device = value(make_cpu_device({.threads = 2}));
  const auto model = value(V41Model::create(*device, shipped_model()));
  const auto ids = random_tokens(301, 1);
  for (const Position replay_start : {Position{0}, Position{301 - 128}}) {
    const Outcome whole = prefill_in_chunks(*device, *model, ids, {}, replay_start);
    for (uint32_t seed = 0; seed < 6; ++seed) {
      const auto cuts = random_cuts(ids.size(), seed < 2 ? 7 : 120, seed);
      EXPECT_EQ(prefill_in_chunks(*device, *model, ids, cuts, replay_start), whole)
          << "seed " << seed << " replay from " << replay_start;
    }
  }
}

TEST(ModelInvariance, TheDelayedDeviceGivesTheSameBytes) {
  auto cpu = value(make_cpu_device({.threads = 2}));
  auto delayed = value(make_delayed_device({.threads = 1}));
  const auto model = value(V41Model::create(*cpu, shipped_model()));
  const auto late_model = value(V41Model::create(*delayed, shipped_model()));
  const auto ids = random_tokens(150, 2);
  EXPECT_EQ(prefill_in_chunks(*delayed, *late_model, ids, {64, 100}, 22), prefill_in_chunks(*cpu, *model, ids, {}, 22));
}

TEST(ModelInvariance, ThreadsDoNotMatter) {
  const auto ids = random_tokens(90, 3);
  std::vector<Outcome> outcomes;
  for (const int threads : {1, 2, 3}) {
    auto device = value(make_cpu_device({.threads = threads}));
    const auto model = value(V41Model::create(*device, shipped_model()));
    outcomes.push_back(prefill_in_chunks(*device, *model, ids, {}, 0));
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0], outcomes[2]);
}

// Prompts of different lengths, one per sequence.
std::vector<std::vector<TokenId>> prompts() {
  std::vector<std::vector<TokenId>> out;
  for (uint32_t i = 0; i < 4; ++i) out.push_back(random_tokens(20 + 37 * i, 10 + i));
  return out;
}

StepPlan plan_of(const std::vector<std::vector<TokenId>>& sequences, size_t begin, size_t end) {
  StepPlan plan;
  for (size_t i = begin; i < end; ++i) {
    plan.sequences.push_back({.slot = static_cast<SlotId>(i),
                              .begin = 0,
                              .count = static_cast<int32_t>(sequences[i].size()),
                              .first_token = plan.num_rows(),
                              .num_logits = 1});
    plan.tokens.insert(plan.tokens.end(), sequences[i].begin(), sequences[i].end());
  }
  return plan;
}

// Logits of sequences [begin, end) run in one step.
std::vector<float> run_together(ModelHarness& harness, const std::vector<std::vector<TokenId>>& sequences, size_t begin,
                                size_t end) {
  const auto status = harness.run_plan(plan_of(sequences, begin, end));
  EXPECT_TRUE(status.ok()) << status.error().message;
  return value(harness.logits(static_cast<int32_t>(end - begin)));
}

constexpr HarnessOptions kFourSlots{.slots = 4, .max_rows = 512, .max_logits = 4, .max_context = 256};

TEST(ModelInvariance, CompanyDoesNotMatter) {
  auto device = value(make_cpu_device({.threads = 2}));
  const auto model = value(V41Model::create(*device, shipped_model()));
  const auto sequences = prompts();
  auto harness = value(ModelHarness::create(*device, *model, kFourSlots));
  std::vector<float> alone;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto logits = run_together(*harness, sequences, i, i + 1);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  ASSERT_TRUE(harness->reset().ok());
  EXPECT_EQ(run_together(*harness, sequences, 0, sequences.size()), alone);
}

// What one sequence gets from a draft pass.
struct Drafted {
  std::vector<TokenId> tokens;
  std::vector<float> confidence, logits;
  bool operator==(const Drafted&) const = default;
};

std::vector<Drafted> draft(ModelHarness& harness, std::span<const DraftSequence> sequences) {
  const Drafter& drafter = *harness.model().drafter();
  const size_t n = sequences.size(), width = static_cast<size_t>(drafter.width());
  std::vector<SampleRow> draws;
  for (size_t k = 0; k < width; ++k) {
    for (const DraftSequence& sequence : sequences) {
      draws.push_back(
          {.temperature = sequence.slot % 3 == 0 ? 0.0f : 1.0f, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1});
      draws.back().seed = static_cast<uint64_t>(sequence.slot),
      draws.back().position = sequence.last + 2 + static_cast<int64_t>(k);
    }
  }
  std::vector<SampleResult> results(n * width);
  std::vector<float> confidence(n * width);
  V41Workspace& workspace = harness.workspace();
  EXPECT_TRUE(drafter.draft({sequences, draws}, harness.state(), workspace, {results.data(), confidence.data()}));
  const size_t vocab = static_cast<size_t>(harness.model().shape().vocab);
  const auto logits = value(harness.download<float>(drafter.logits(workspace), static_cast<int64_t>(n * width * vocab)));
  std::vector<Drafted> out(n);
  for (size_t at = 0; at < n * width; ++at) {
    Drafted& one = out[at % n];
    one.tokens.push_back(results[at].token);
    one.confidence.push_back(confidence[at]);
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(at * vocab);
    one.logits.insert(one.logits.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
  }
  return out;
}

// Sequences of many lengths in one draft pass, in any company and order; a pass leaves the state as it was.
TEST(ModelInvariance, ADraftPassOfManyIsThatOfEach) {
  for (const bool delayed : {false, true}) {
    auto device = delayed ? value(make_delayed_device({.threads = 1})) : value(make_cpu_device({.threads = 2}));
    const auto model = value(V41Model::create(*device, shipped_model()));
    const std::vector<size_t> lengths = {1, 2, 63, 64, 126, 129, 200};
    const auto slots = static_cast<int32_t>(lengths.size());
    auto harness =
        value(ModelHarness::create(*device, *model, {.slots = slots, .max_rows = 256, .max_context = 256, .max_drafts = slots}));
    std::vector<DraftSequence> sequences;
    std::vector<Drafted> alone;
    for (int32_t slot = 0; slot < slots; ++slot) {
      const auto ids = random_tokens(lengths[static_cast<size_t>(slot)], static_cast<uint32_t>(40 + slot));
      ASSERT_TRUE(harness->run({.tokens = ids, .slot = slot}));
      ASSERT_TRUE(model->drafter()->note_rows(harness->state(), harness->workspace()));
      sequences.push_back({.slot = slot, .last = static_cast<Position>(ids.size()) - 1, .next = 100 + slot});
    }
    std::vector<std::vector<uint8_t>> states;
    for (int32_t slot = 0; slot < slots; ++slot) states.push_back(value(harness->state_bytes(slot)));
    for (const DraftSequence& sequence : sequences) alone.push_back(draft(*harness, {&sequence, 1})[0]);
    std::mt19937 random(6);
    for (int round = 0; round < 6; ++round) {
      std::vector<DraftSequence> some = sequences;
      std::shuffle(some.begin(), some.end(), random);
      if (round > 0) some.resize(2 + random() % (some.size() - 1));
      const auto together = draft(*harness, some);
      for (size_t i = 0; i < some.size(); ++i)
        EXPECT_EQ(together[i], alone[static_cast<size_t>(some[i].slot)]) << "round " << round;
    }
    for (int32_t slot = 0; slot < slots; ++slot) EXPECT_EQ(value(harness->state_bytes(slot)), states[static_cast<size_t>(slot)]);
  }
}

TEST(ModelInvariance, AllSetsOfCpuKernelsHaveOneFingerprint) {
  auto device = value(make_cpu_device({.threads = 1}));
  const std::string best = value(V41Model::create(*device, shipped_model()))->fingerprint();
  auto portable = value(make_cpu_device({.threads = 1, .isa = "portable"}));
  EXPECT_EQ(value(V41Model::create(*portable, shipped_model()))->fingerprint(), best);
}

// Each rank thread runs its share of the sequences; the experts are spread over all ranks.
std::vector<float> run_on_ranks(int32_t ranks) {
  const auto sequences = prompts();
  ThreadGroup group(ranks);
  std::vector<std::vector<float>> parts(static_cast<size_t>(ranks));
  std::barrier all_done(ranks);  // what a rank has sent is read until the others are done
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto device = value(make_cpu_device({.threads = 1}));
      const auto communicator = group.join(rank);
      V41Options options = shipped_model();
      options.communicator = communicator.get();
      const auto model = value(V41Model::create(*device, std::move(options)));
      auto harness = value(ModelHarness::create(*device, *model, kFourSlots));
      const size_t share = sequences.size() / static_cast<size_t>(ranks);
      parts[static_cast<size_t>(rank)] =
          run_together(*harness, sequences, static_cast<size_t>(rank) * share, static_cast<size_t>(rank + 1) * share);
      all_done.arrive_and_wait();
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(ModelInvariance, OneTwoAndFourRanksGiveTheSameBytes) {
  const auto one = run_on_ranks(1);
  EXPECT_EQ(run_on_ranks(2), one);
  EXPECT_EQ(run_on_ranks(4), one);
}

}  // namespace
}  // namespace deepinfer
