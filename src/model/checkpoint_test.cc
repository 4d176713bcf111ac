// A small checkpoint written in the official layout reads back the same; each fault we name is reported with file and tensor.
#include <gtest/gtest.h>

#include "model/checkpoint_fixture.h"

namespace deepinfer {
namespace {

const std::string kShared = DEEPINFER_SOURCE_DIR "/../shared";

TEST_F(CheckpointTest, DiskAndMemoryAgree) {
  EXPECT_GE(files_.size(), 5u);
  const auto weights = load(directory_);
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->checkpoint->tensors().size(), memory_->tensors().size());
  for (const TensorView& tensor : memory_->tensors()) {
    const TensorView* read = weights->checkpoint->find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_TRUE(std::equal(read->data.begin(), read->data.end(), tensor.data.begin(), tensor.data.end())) << tensor.name;
  }
  const auto shape = parse_model_config(memory_->config_text(), "memory");
  ASSERT_TRUE(shape);
  EXPECT_EQ(model_config_text(*shape), memory_->config_text());
  EXPECT_EQ(weights->layers.size(), 5u);
  EXPECT_EQ(weights->draft.size(), 2u);
  EXPECT_EQ(weights->layers[0].w1.size(), 3u);
  EXPECT_TRUE(weights->layers[1].compressor && weights->layers[1].compressor->wgate.data);
  EXPECT_TRUE(weights->vision.has_value());
}

TEST_F(CheckpointTest, PrefetchReportsAllBytesOnce) {
  const auto checkpoint = Checkpoint::open(directory_);
  ASSERT_TRUE(checkpoint);
  int64_t last = -1, total_seen = 0;
  int ends = 0;
  (*checkpoint)->prefetch([&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    last = done;
    total_seen = total;
    ends += done == total;
  });
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(last, total_seen);
}

TEST_F(CheckpointTest, MissingPieces) {
  std::filesystem::rename(path("config.json"), path("config.away"));
  expect_fault({"config.json", "No such file"});
  std::filesystem::rename(path("config.away"), path("config.json"));
  const std::string shard = shard_of("norm.weight");
  std::filesystem::remove(path(shard));
  expect_fault({shard, "index.json names it for tensor"});
  std::filesystem::remove(path("model.safetensors.index.json"));
  expect_fault({"neither"});
  EXPECT_NE(Checkpoint::open(directory_ + "/nowhere").error().message.find("not a directory"), std::string::npos);
}

TEST_F(CheckpointTest, TruncatedShard) {
  const std::string shard = shard_of("norm.weight");
  put(shard, content(shard).substr(0, content(shard).size() - 10));
  expect_fault({shard, "tensor", "truncated"});
}

TEST_F(CheckpointTest, ShardNamesMustStayInside) {
  for (const char* name : {"../escape.safetensors", "/etc/passwd", "..", "", "a/b", "a\nb"}) {
    auto index = *Json::parse(content("model.safetensors.index.json"));
    index.find("weight_map")->set("norm.weight", Json(name));
    put("model.safetensors.index.json", index.dump());
    expect_fault({"index.json", "\"norm.weight\"", "must be the name of a file in the directory"});
  }
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  auto index = *Json::parse(content("model.safetensors.index.json"));
  index.find("weight_map")->set("ghost.weight", Json(shard_of("norm.weight")));
  put("model.safetensors.index.json", index.dump());
  expect_fault({shard_of("norm.weight"), "\"ghost.weight\" is missing"});
  auto& members = index.find("weight_map")->members();
  std::erase_if(members, [](const Json::Member& m) { return m.first == "ghost.weight" || m.first == "norm.weight"; });
  put("model.safetensors.index.json", index.dump());
  expect_fault({shard_of("norm.weight"), "\"norm.weight\" is extra"});
}

TEST_F(CheckpointTest, MissingTensor) {
  rewrite([](std::vector<TensorView>& tensors) {
    std::erase_if(tensors, [](const TensorView& t) { return t.name == "layers.2.attn.wkv.scale"; });
  });
  expect_fault({"\"layers.2.attn.wkv.scale\" is missing", "F8_E8M0 [1, 1] expected"});
}

TEST_F(CheckpointTest, WrongDtypeAndShape) {
  rewrite([](std::vector<TensorView>& tensors) { tensor(tensors, "norm.weight").type = TensorType::kF16; });
  expect_fault({".safetensors", "\"norm.weight\"", "dtype is F16, expected BF16"});
  rewrite([](std::vector<TensorView>& tensors) { tensor(tensors, "layers.0.attn.wq_b.weight").shape = {32, 64}; });
  expect_fault({".safetensors", "\"layers.0.attn.wq_b.weight\"", "shape is [32, 64], expected [64, 32]"});
}

TEST_F(CheckpointTest, ExtraTensorsDoNotDisturb) {
  rewrite([](std::vector<TensorView>& tensors) {
    TensorView extra = tensor(tensors, "norm.weight");
    extra.name = "note";
    tensors.push_back(extra);
  });
  EXPECT_TRUE(load(directory_));
}

TEST_F(CheckpointTest, ValuesThatAreNoNumbers) {
  struct Case {
    const char* tensor;
    std::vector<uint8_t> value;
    const char* fault;
  };
  const Case cases[] = {{"layers.0.attn.wo_b.scale", {255}, "F8_E8M0 at row 0, column 0 is NaN"},
                        {"layers.4.ffn.experts.2.w2.scale", {255}, "NaN"},
                        {"layers.1.engram.embed.scale", {255}, "NaN"},
                        {"mtp.0.main_proj.weight", {0x7F}, "F8_E4M3 at row 0, column 0 is NaN"},
                        {"embed.weight", {0xC0, 0x7F}, "BF16 at row 0, column 0 is NaN or infinite"},
                        {"layers.0.attn.attn_sink", {0, 0, 0x80, 0x7F}, "F32 at element 0 is NaN or infinite"}};
  for (const Case& c : cases) {
    std::vector<uint8_t> bytes;
    rewrite([&](std::vector<TensorView>& tensors) {
      TensorView& changed = tensor(tensors, c.tensor);
      bytes.assign(changed.data.begin(), changed.data.end());
      std::copy(c.value.begin(), c.value.end(), bytes.begin());
      changed.data = bytes;
    });
    expect_fault({".safetensors", c.tensor, c.fault});
  }
}

TEST(Checkpoint, ReadsTheSharedCheckpoints) {
  if (!is_directory(kShared)) GTEST_SKIP() << "left out: ../shared is not here";
  for (const char* name : {"/golden/model/tiny-a", "/models/tiny-v41"}) {
    const auto weights = load(kShared + name);
    ASSERT_TRUE(weights) << weights.error().message;
    const auto shape = parse_model_config(weights->checkpoint->config_text(), name);
    ASSERT_TRUE(shape);
    const auto specs = expected_tensors(*shape);
    EXPECT_EQ(weights->checkpoint->tensors().size(), specs.size());
    EXPECT_EQ(shape->plan[8].mode, AttentionMode::kReindex);
    EXPECT_EQ(shape->plan[8].kv_source, 6);
    EXPECT_EQ(shape->plan[3].mode, AttentionMode::kReuse);
    EXPECT_EQ(shape->plan[3].index_source, 2);
    EXPECT_EQ(shape->plan[4].engram, 1);
    EXPECT_EQ(shape->plan[9].tap, 2);
    // What we write reads back to the same shape.
    const auto again = parse_model_config(model_config_text(*shape), "again");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(model_config_text(*again), model_config_text(*shape));
  }
}

}  // namespace
}  // namespace deepinfer
