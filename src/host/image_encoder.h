// host/image_encoder.h - pictures of a conversation to rows of its prompt.
//
// Resolves what the request names (images/resolve.h), runs the vision tower once per content, keeps the latest results, and
// puts the rows where the placeholders stand.
// Promise: a model without a vision tower refuses pictures and says so; equal pictures are encoded once while they are kept;
// the rows depend on the pixels alone. Memory is bounded.
// Threads: any; encodes one picture at a time, on a device of its own, so that the engine's steps never wait for it (on a GPU
// only for its allocations).
//
//   DI_TRY(const auto pictures, encoder.prepare(prompt.images()));   // decoded; they say how many rows they take
//   DI_TRY(const auto spans, encoder.encode(pictures, ids));         // ids grow by these rows
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/types.h"
#include "images/resolve.h"
#include "model/language_model.h"
#include "ops/device.h"
#include "recipe/conversation.h"

namespace deepinfer {

// A picture's rows, BF16 [tokens, hidden]. Called from any thread, from several at once.
using ImageTower = std::function<Result<std::vector<uint16_t>>(const PreparedImage&)>;

// The tower of a model in this process, on a device that sees its weights (null: a CPU device of `isa`, the kernels
// that the weights were packed for, made with the first picture). `model` must outlive it.
ImageTower local_tower(const LanguageModel& model, int32_t threads, std::string isa, std::unique_ptr<Device> device);

class ImageEncoder {
 public:
  // `limits` of one request; its geometry is that of the model of `shape` and `name`.
  ImageEncoder(const ModelShape& shape, std::string name, ImageLimits limits, ImageTower tower,
               size_t max_bytes = size_t{64} << 20);

  // The pictures decoded and measured; the tower does not run. kIo: a download failed that may work later.
  Result<std::vector<PreparedImage>> prepare(const std::vector<ImageReference>& images) const;
  // Their spans, in order; each placeholder in `ids` becomes as many ids as its picture has rows.
  Result<std::vector<ImageSpan>> encode(const std::vector<PreparedImage>& pictures, std::vector<TokenId>& ids);

  // The rows of one picture, kept or made now. For whoever has it prepared elsewhere.
  Result<std::vector<uint16_t>> encode_picture(const PreparedImage& image);

  // How often the tower ran.
  int64_t num_encoded() const { return num_encoded_; }

 private:
  struct Entry {
    std::string hash;
    std::shared_ptr<const std::vector<uint16_t>> rows;  // BF16 [tokens, hidden]
  };
  Result<std::shared_ptr<const std::vector<uint16_t>>> rows_of(const PreparedImage& image);
  void keep(Entry entry);

  const ModelShape shape_;
  const std::string name_;
  ImageLimits limits_;
  ImageTower tower_;
  size_t max_bytes_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  size_t bytes_ = 0;
  int64_t num_encoded_ = 0;
};

}  // namespace deepinfer
