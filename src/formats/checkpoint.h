// formats/checkpoint.h - a checkpoint: config.json and named tensors, on disk or in memory.
//
// On disk it is the official directory: config.json, model.safetensors.index.json with its weight_map and the shards it
// names (or one model.safetensors without index). All shards are mapped, none is read. Every tensor must be where the
// index says, and every tensor of a shard must be in the index; shard names must not leave the directory.
// Promise: a usable checkpoint or a one-line Error naming file, tensor and fault. Weights stay in their mapping.
// Threads: const after open().
//
//   DI_TRY(auto checkpoint, Checkpoint::open(dir));
//   DI_TRY(auto shape, parse_model_config(checkpoint->config_text(), checkpoint->config_path()));   // model/config.h
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/safetensors.h"

namespace deepinfer {

// Called now and then with bytes done and bytes in all; may be empty. Always called once with done == total at the end.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

class Checkpoint {
 public:
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& directory);
  // Tensors whose bytes `memory` keeps alive; `name` stands where the directory would in messages.
  static std::shared_ptr<const Checkpoint> in_memory(std::string name, std::string config_text, std::vector<TensorView> tensors,
                                                     std::shared_ptr<const void> memory);

  const std::string& path() const { return path_; }
  const std::string& config_text() const { return config_text_; }
  std::string config_path() const;
  // Sorted by name; names are unique.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;
  int64_t tensor_bytes() const { return tensor_bytes_; }
  const std::vector<SafetensorsFile>& shards() const { return shards_; }
  // Reads every page of every shard once, in order, so that the first step does not wait for the disk.
  void prefetch(const LoadProgress& progress) const;
  bool is_in_memory() const { return memory_ != nullptr; }
  // Gives back the memory of a tensor that nobody will read again: it is in another order elsewhere. Only of a checkpoint in
  // memory (the system takes pages of files back by itself); the tensor is zeros from now on.
  void let_go(std::span<const uint8_t> tensor) const;
  bool has_holes() const { return has_holes_; }

 private:
  Checkpoint() = default;
  Status open_shards();
  Status merge();

  std::string path_, config_text_;
  std::vector<SafetensorsFile> shards_;
  std::vector<TensorView> tensors_;
  std::shared_ptr<const void> memory_;
  int64_t tensor_bytes_ = 0;
  mutable std::atomic<bool> has_holes_ = false;
};

struct CheckpointWriteOptions {
  int64_t shard_bytes = int64_t{4} << 30;  // a shard is closed when the next tensor would pass this
};
// Writes config.json, shards and index into an existing or new directory.
Status write_checkpoint(const Checkpoint& checkpoint, const std::string& directory, const CheckpointWriteOptions& options = {});

}  // namespace deepinfer
