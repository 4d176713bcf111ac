// Which experts stay in memory, and that it never shows in a product.
#include "cpu/expert_memory.h"

#include <vector>

#include "cpu/test_values.h"

namespace deepinfer {
namespace {

TEST(ExpertMemory, KeepsWhatIsUsedMost) {
  std::vector<uint8_t> room(300);
  cpu::ExpertMemory memory;
  memory.open(room.data(), 100, 3, 8);
  const auto use = [&](std::vector<int32_t> places) {
    memory.begin();
    int held = 0;
    for (const int32_t place : places) {
      const auto found = memory.use(place);
      EXPECT_EQ(found.panels != nullptr, memory.holds(place));
      held += found.panels != nullptr;
    }
    return held;
  };
  EXPECT_EQ(use({0, 1, 2}), 3);
  EXPECT_EQ(use({0, 1, 3}), 2);  // no more than its equal: 2 stays
  EXPECT_TRUE(memory.holds(2) && !memory.holds(3));
  EXPECT_EQ(use({3}), 1);  // used more often than 2
  EXPECT_TRUE(memory.holds(3) && !memory.holds(2));
  for (int i = 0; i < 5; ++i) use({0, 1, 3});
  EXPECT_EQ(use({0, 1, 2, 3, 4, 5, 6, 7}), 3);  // one pass over all pushes nothing out
  for (int i = 0; i < 300; ++i) use({4, 5});
  EXPECT_TRUE(memory.holds(4) && memory.holds(5));  // what was hot once gives way
  memory.begin();
  memory.use(4), memory.use(5), memory.use(6);
  for (int i = 0; i < 400; ++i) memory.use(7);
  EXPECT_TRUE(memory.holds(4) && memory.holds(5));  // not within the product that uses them
}

TEST(ExpertMemory, ProductsAreTheSameWithEveryBudget) {
  constexpr int kExperts = 9, kN = 48, kK = 64, kRows = 5;
  Random random(5);
  std::vector<Weight> weights;
  for (int e = 0; e < kExperts; ++e) weights.push_back(random_weight(random, WeightFormat::kFp4, kN, kK));
  const auto codes = random.e4m3(kRows * kK), scales = random.e8m0(kRows * kK / 32);
  struct Step {
    std::vector<int32_t> offsets, pair_row;
  };
  std::vector<Step> steps(20);
  for (Step& step : steps) {
    for (int e = 0; e < kExperts; ++e) {
      step.offsets.push_back(static_cast<int32_t>(step.pair_row.size()));
      for (int i = random.between(-3, 2); i > 0; --i) step.pair_row.push_back(random.below(kRows));
    }
    step.offsets.push_back(static_cast<int32_t>(step.pair_row.size()));
  }
  const auto run = [&](Device& device) {
    std::vector<Matrix> table;
    for (const Weight& w : weights) table.push_back(w.matrix);
    std::vector<Matrix*> list;
    for (Matrix& w : table) list.push_back(&w);
    const Buffer room = *device.pack(list);
    std::vector<Bf16> out;
    for (const Step& step : steps) {
      const auto pairs = static_cast<int32_t>(step.pair_row.size());
      const size_t at = out.size();
      out.resize(at + static_cast<size_t>(pairs) * kN);
      device.will_multiply(table, step.offsets.data());
      device.ops().grouped_matmul({{&pairs, pairs},
                                   codes.data(),
                                   scales.data(),
                                   step.pair_row.data(),
                                   step.offsets.data(),
                                   table.data(),
                                   kExperts,
                                   out.data() + at});
    }
    return out;
  };
  for (const CpuKernelsInfo& kernels : list_cpu_kernels()) {
    if (!kernels.supported) continue;
    auto whole = make_cpu_device({.threads = 2, .isa = kernels.isa});
    const auto want = run(**whole);
    EXPECT_EQ((*whole)->counts().expert_uses, 0);
    int64_t misses = INT64_MAX;
    for (const int64_t bytes : {1, 2000, 4000, 8000, 1 << 20}) {  // of 1,632 an expert
      auto device = make_cpu_device({.threads = 2, .isa = kernels.isa, .expert_bytes = bytes});
      EXPECT_TRUE(same_bits(run(**device), want)) << kernels.isa << " with " << bytes << " bytes";
      const WorkCounts counts = (*device)->counts();
      EXPECT_EQ(counts.weight_bytes, (*whole)->counts().weight_bytes);
      if (kernels.isa == std::string("portable")) continue;  // reads weights as stored
      EXPECT_LE(counts.expert_misses, misses);
      EXPECT_EQ(counts.missed_bytes, counts.expert_misses * (kN / 16) * (kK / 32) * 272);
      misses = counts.expert_misses;
      EXPECT_TRUE(same_bits(run(**device), want)) << "the first model's memory is another's";
    }
    EXPECT_TRUE(misses <= kExperts || kernels.isa == "portable") << "with room for all each is read once";
  }
}

}  // namespace
}  // namespace deepinfer
