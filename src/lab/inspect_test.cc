#include "lab/inspect.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/random_checkpoint.h"

namespace deepinfer {
namespace {

const std::string kShared = DEEPINFER_SOURCE_DIR "/../shared";
constexpr const char* kSmall =
    "v41?layers=4&hidden=32&heads=2&head_dim=32&rope=8&q_rank=32&o_rank=16&o_groups=2&experts=2&top_k=1&expert_hidden=32&draft=1&"
    "window=8"
    "&vocab=16&index_heads=2&index_dim=32&index_topk=8&candidate_blocks=4&candidate_block=4&engram_rows=200&engram_heads=2&"
    "engram_dim=32"
    "&markov_rank=8&context=4096";

TEST(Inspect, ListsEveryDifference) {
  ThreadPool pool(1);
  const auto good = make_random_checkpoint(kSmall, pool);
  ASSERT_TRUE(good) << good.error().message;
  const auto report = inspect_checkpoint(*good);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->complete()) << report->text();
  EXPECT_EQ(report->groups.at({"engram tables", "F8_E4M3"}).tensors, 1);

  std::vector<TensorView> tensors = (*good)->tensors();
  std::erase_if(tensors, [](const TensorView& t) { return t.name == "norm.weight" || t.name == "layers.3.attn.attn_sink"; });
  std::vector<uint8_t> bad;
  for (TensorView& tensor : tensors) {
    if (tensor.name != "layers.0.attn.wkv.scale") continue;
    bad.assign(tensor.data.size(), 255);
    tensor.data = bad;
  }
  TensorView extra = tensors.front();
  extra.name = "note";
  tensors.push_back(extra);
  const auto broken = inspect_checkpoint(Checkpoint::in_memory("broken", (*good)->config_text(), tensors, *good));
  ASSERT_TRUE(broken);
  EXPECT_FALSE(broken->complete());
  EXPECT_EQ(broken->missing, (std::vector<std::string>{"layers.3.attn.attn_sink", "norm.weight"}));
  EXPECT_EQ(broken->extra, std::vector<std::string>{"note"});
  ASSERT_EQ(broken->faults.size(), 1u);
  EXPECT_NE(broken->faults[0].find("layers.0.attn.wkv.scale"), std::string::npos);
  EXPECT_NE(broken->text().find("missing: norm.weight"), std::string::npos);
  EXPECT_FALSE(broken->json().at("complete").as_bool());
}

TEST(Inspect, SharedCheckpointsAreComplete) {
  if (!is_directory(kShared)) GTEST_SKIP() << "left out: ../shared is not here";
  for (const char* name : {"/golden/model/tiny-a", "/models/tiny-v41"}) {
    const auto report = inspect_checkpoint(kShared + name);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->complete()) << report->text();
    EXPECT_TRUE(Json::parse(report->json(true).dump()));
  }
}

}  // namespace
}  // namespace deepinfer
