// model/checkpoint_fixture.h - tests only: a small checkpoint of every layer kind on disk, to be damaged at will.
#pragma once

#include <unistd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "core/kv_layout.h"
#include "model/config.h"
#include "model/engram_tables.h"
#include "model/random_checkpoint.h"
#include "model/weights.h"

namespace deepinfer {

inline constexpr const char* kSmall =
    "v41?layers=5&hidden=32&heads=2&head_dim=32&rope=8&q_rank=32&o_rank=16&o_groups=2&experts=3&top_k=2&expert_hidden=32&draft=2&"
    "window=8"
    "&vocab=24&index_heads=2&index_dim=32&index_topk=8&candidate_blocks=4&candidate_block=4&engram_rows=200&engram_heads=2"
    "&engram_dim=32&markov_rank=8&context=4096&vision=1&vision_hidden=64&seed=7";

// Everything a program does with a checkpoint before the first step.
inline Result<Weights> load(const std::string& directory) {
  DI_TRY(const auto checkpoint, Checkpoint::open(directory));
  DI_TRY(const ModelShape shape, parse_model_config(checkpoint->config_text(), checkpoint->config_path()));
  DI_TRY(Weights weights, bind_weights(checkpoint, shape));
  if (!shape.engram_layers.empty()) {
    const auto tables = make_engram_tables(shape);
    if (!tables) return Error{tables.error().code, directory + ": " + tables.error().message};
  }
  const KvLayout layout = make_kv_layout(shape);
  EXPECT_GT(layout.state_bytes, 0);
  return weights;
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    // Two runs at once (another build, another clone) must not share a folder.
    directory_ = testing::TempDir() + "checkpoint_test_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    ThreadPool pool(1);
    const auto random = make_random_checkpoint(kSmall, pool);
    ASSERT_TRUE(random) << random.error().message;
    ASSERT_TRUE(write_checkpoint(**random, directory_, {.shard_bytes = 60000}));
    memory_ = *random;
    const auto names = list_directory(directory_);
    ASSERT_TRUE(names);
    for (const std::string& name : *names) {
      files_.push_back(name);
      contents_.push_back(*read_file(path(name)));
    }
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void put(const std::string& name, const std::string& content) const {
    std::ofstream out(path(name), std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  size_t index_of(const std::string& name) const {
    return static_cast<size_t>(std::find(files_.begin(), files_.end(), name) - files_.begin());
  }
  const std::string& content(const std::string& name) const { return contents_[index_of(name)]; }
  std::string shard_of(const std::string& tensor) const {
    const auto index = Json::parse(content("model.safetensors.index.json"));
    return index->at("weight_map").at(tensor).as_string();
  }

  // Loads, expects a one-line error, returns it.
  std::string fault() const {
    const auto weights = load(directory_);
    EXPECT_FALSE(weights);
    if (weights) return "";
    EXPECT_EQ(weights.error().message.find('\n'), std::string::npos) << weights.error().message;
    EXPECT_NE(weights.error().message.find(directory_), std::string::npos) << weights.error().message;
    return weights.error().message;
  }
  void expect_fault(std::initializer_list<std::string> parts) const {
    const std::string message = fault();
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  }

  // Writes the memory checkpoint anew with `change` applied to the tensor list.
  template <class Change>
  void rewrite(Change change) const {
    std::vector<TensorView> tensors = memory_->tensors();
    change(tensors);
    const auto changed = Checkpoint::in_memory("changed", memory_->config_text(), std::move(tensors), memory_);
    ASSERT_TRUE(write_checkpoint(*changed, directory_, {.shard_bytes = 1 << 30}));
  }
  static TensorView& tensor(std::vector<TensorView>& tensors, const std::string& name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& t) { return t.name == name; });
  }

  std::string directory_;
  std::shared_ptr<const Checkpoint> memory_;
  std::vector<std::string> files_, contents_;
};

}  // namespace deepinfer
