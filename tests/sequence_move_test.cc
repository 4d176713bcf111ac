// A running sequence goes on in another slot, on other pages or in another store as if it had stayed.
#include <gtest/gtest.h>

#include "kvcache/sequence_store.h"
#include "model/scripted_model.h"
#include "tests/engine_harness.h"

namespace deepinfer {
namespace {

constexpr const char* kScript = R"({"scripted": 1, "vocab": 67, "context": 64, "page_tokens": 16}
{"hash": {"tokens": 40, "seed": 9}})";

// One sequence at a time through model and store, greedy.
class Walker {
 public:
  Walker(Device& device, const LanguageModel& model, SequenceStore& store)
      : device_(device),
        model_(model),
        store_(store),
        workspace_(value(model.make_workspace(device, {.max_rows = 32, .max_logits = 1, .max_context = 64}))) {}

  std::vector<float> run(const SequenceLease& lease, const std::vector<TokenId>& tokens, Position begin) {
    StepPlan plan;
    plan.tokens.assign(tokens.begin() + begin, tokens.end());
    plan.sequences = {{.slot = lease.slot(), .begin = begin, .count = plan.num_rows(), .num_logits = 1}};
    const StateView view{store_.states(), store_.pages(), store_.page_table(), store_.table_stride()};
    EXPECT_TRUE(model_.forward(plan, view, *workspace_));
    std::vector<float> logits(static_cast<size_t>(model_.shape().vocab));
    device_.download(logits.data(), workspace_->logits(), logits.size() * sizeof(float));
    EXPECT_TRUE(device_.wait(device_.record()));
    return logits;
  }

 private:
  Device& device_;
  const LanguageModel& model_;
  SequenceStore& store_;
  std::unique_ptr<Workspace> workspace_;
};

class SequenceMove : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Devices, SequenceMove, testing::Values("cpu", "delayed"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(SequenceMove, GoesOnInAnotherSlotWithTheSameBytes) {
  const auto device = device_named(GetParam());
  const ScriptedModel model(value(parse_script(kScript, "test")));
  const auto store = value(SequenceStore::create(*device, model.layout(), {.slots = 3, .pages = 9, .context = 64}));
  Walker walker(*device, model, *store);
  std::vector<TokenId> tokens{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  const auto run_to = [&](const SequenceLease& lease, Position begin, size_t end, std::vector<TokenId> ids) {
    while (ids.size() < end) {
      const auto logits = walker.run(lease, ids, begin);
      begin = static_cast<Position>(ids.size());
      ids.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return ids;
  };
  const auto stayed_lease = value(store->open(64));
  const auto stayed = run_to(stayed_lease, 0, 40, tokens);
  const auto first = value(store->open(20));
  const auto half = run_to(first, 0, 20, tokens);
  ASSERT_TRUE(std::equal(half.begin(), half.end(), stayed.begin()));

  const SequenceBytes bytes = value(store->export_sequence(first, 19));
  const auto elsewhere = value(SequenceStore::create(*device, model.layout(), {.slots = 2, .pages = 8, .context = 64}));
  const auto crowd = value(elsewhere->open(40));  // takes the slot and pages that `first` had at home
  const auto moved = value(elsewhere->open(40));
  ASSERT_TRUE(elsewhere->import_sequence(moved, bytes));
  Walker far(*device, model, *elsewhere);
  std::vector<TokenId> ids = half;
  while (ids.size() < 40) {
    const auto logits = far.run(moved, ids, static_cast<Position>(ids.size()) - 1);
    ids.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  EXPECT_EQ(ids, stayed);
}

TEST_P(SequenceMove, AUsedSlotStartsClean) {
  const auto device = device_named(GetParam());
  const ScriptedModel model(value(parse_script(kScript, "test")));
  const auto store = value(SequenceStore::create(*device, model.layout(), {.slots = 1, .pages = 4, .context = 64}));
  SequenceBytes garbage;
  {
    const auto lease = value(store->open(64));
    garbage.tokens = 64;
    garbage.state.assign(static_cast<size_t>(model.layout().state_bytes), 0xA5);
    garbage.pages.assign(static_cast<size_t>(4 * model.layout().page_bytes), 0x5A);
    ASSERT_TRUE(store->import_sequence(lease, garbage));
  }
  const auto lease = value(store->open(64));
  const SequenceBytes fresh = value(store->export_sequence(lease, 0));
  EXPECT_EQ(fresh.state, std::vector<uint8_t>(static_cast<size_t>(model.layout().state_bytes), 0));
}

TEST_P(SequenceMove, BytesOfAnotherModelAreRefused) {
  const auto device = device_named(GetParam());
  const ScriptedModel model(value(parse_script(kScript, "test")));
  const auto store = value(SequenceStore::create(*device, model.layout(), {.slots = 1, .pages = 4, .context = 64}));
  const auto lease = value(store->open(16));
  SequenceBytes bytes = value(store->export_sequence(lease, 16));
  bytes.state.pop_back();
  EXPECT_EQ(store->import_sequence(lease, bytes).error().code, ErrorCode::kCorrupt);
  bytes.state.push_back(0);
  bytes.tokens = 17;
  bytes.pages.resize(bytes.pages.size() * 2);
  EXPECT_EQ(store->import_sequence(lease, bytes).error().message, "sequence of 17 tokens needs 2 pages, its lease has 1");
}

TEST_P(SequenceMove, SlotsAndPagesComeBackWithTheLease) {
  const auto device = device_named(GetParam());
  const ScriptedModel model(value(parse_script(kScript, "test")));
  const auto store = value(SequenceStore::create(*device, model.layout(), {.slots = 2, .pages = 4, .context = 64}));
  {
    const auto a = value(store->open(33));
    EXPECT_EQ(store->pool().num_free(), 1);
    EXPECT_EQ(store->open(17).error().code, ErrorCode::kExhausted);
    EXPECT_EQ(store->num_free_slots(), 1);
    const auto b = value(store->open(16));
    EXPECT_EQ(store->open(1).error().message, "all 2 sequence slots are taken: wait for running requests");
  }
  EXPECT_EQ(store->num_free_slots(), 2);
  EXPECT_TRUE(store->pool().balanced());
  EXPECT_EQ(store->pool().num_leased(), 0);
}

}  // namespace
}  // namespace deepinfer
