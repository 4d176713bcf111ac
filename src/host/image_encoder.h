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

class ImageEncoder {
 public:
  // `model` must outlive this. `limits` of one request; its geometry is the model's.
  ImageEncoder(const LanguageModel& model, int32_t threads, ImageLimits limits, size_t max_bytes = size_t{64} << 20);
  ~ImageEncoder();
  // Encodes on this device, which must see the model's weights, instead of a CPU device of its own. Call before encode().
  void use(std::unique_ptr<Device> device) { device_ = std::move(device); }

  // The pictures decoded and measured; the tower does not run. kUnavailable: a download failed that may work later.
  Result<std::vector<PreparedImage>> prepare(const std::vector<ImageReference>& images) const;
  // Their spans, in order; each placeholder in `ids` becomes as many ids as its picture has rows.
  Result<std::vector<ImageSpan>> encode(const std::vector<PreparedImage>& pictures, std::vector<TokenId>& ids);

  // How often the tower ran.
  int64_t num_encoded() const { return num_encoded_; }

 private:
  struct Entry {
    std::string hash;
    std::shared_ptr<const std::vector<uint16_t>> rows;  // BF16 [tokens, hidden]
  };
  Result<std::shared_ptr<const std::vector<uint16_t>>> rows_of(const PreparedImage& image);
  void keep(Entry entry);

  const LanguageModel& model_;
  int32_t threads_;
  ImageLimits limits_;
  size_t max_bytes_;
  std::mutex mutex_;
  std::unique_ptr<Device> device_;  // made with the first picture, if none was given
  std::list<Entry> entries_;        // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  size_t bytes_ = 0;
  int64_t num_encoded_ = 0;
};

}  // namespace deepinfer
