#include "host/image_encoder.h"

#include <algorithm>

#include <fmt/format.h>

#include "cpu/cpu_device.h"
#include "model/v41_model.h"
#include "model/vision.h"

namespace deepinfer {

namespace {

ImageGeometry geometry_of(const ModelShape& shape) {
  ImageGeometry geometry;
  if (!shape.vision) return geometry;
  geometry.patch = shape.vision->patch;
  geometry.downsample = shape.vision->downsample;
  geometry.min_pixels = shape.vision->min_pixels;
  geometry.max_tokens = shape.vision->max_image_tokens;
  return geometry;
}

ImageSource source_of(const ImageReference& image) {
  ImageSource source;
  source.url = image.url;
  source.detail = image.detail;
  source.path = image.path;
  return source;
}

// The placeholders of `ids` grow to the rows of their pictures.
Status grow_placeholders(TokenId image_id, std::vector<ImageSpan>& spans, std::vector<TokenId>& ids) {
  std::vector<TokenId> out;
  size_t next = 0;
  for (const TokenId id : ids) {
    if (id != image_id || next == spans.size()) {
      out.push_back(id);
      continue;
    }
    ImageSpan& span = spans[next++];
    span.begin = static_cast<Position>(out.size());
    out.insert(out.end(), static_cast<size_t>(span.rows), image_id);
  }
  if (next != spans.size()) return internal_error(fmt::format("the prompt holds {} of {} pictures", next, spans.size()));
  ids = std::move(out);
  return {};
}

}  // namespace

ImageTower local_tower(const LanguageModel& language_model, int32_t threads, std::string isa, std::unique_ptr<Device> given) {
  struct OneAtATime {
    std::mutex mutex;
    std::unique_ptr<Device> device;
  };
  const auto tower = std::make_shared<OneAtATime>();
  tower->device = std::move(given);
  return [&language_model, threads, isa = std::move(isa), tower](const PreparedImage& image) -> Result<std::vector<uint16_t>> {
    const std::lock_guard lock(tower->mutex);
    std::unique_ptr<Device>& device = tower->device;
    // The tower is not part of the door of language models: only this architecture has one.
    const auto* model = dynamic_cast<const V41Model*>(&language_model);
    if (!model) return unsupported(fmt::format("the model {} cannot encode pictures", language_model.name()));
    if (!device) {
      DI_TRY(device, make_cpu_device({.threads = threads, .isa = isa}));
    }
    const int32_t patch = geometry_of(model->shape()).patch;
    const PatchGrid grid{image.pixels->height / patch, image.pixels->width / patch};
    DI_TRY(VisionSpan span, encode_image(*device, model->shape(), model->device_weights(), image_patches(image, patch), grid));
    return std::move(span.embeddings);
  };
}

ImageEncoder::ImageEncoder(const ModelShape& shape, std::string name, ImageLimits limits, ImageTower tower, size_t max_bytes)
    : shape_(shape), name_(std::move(name)), limits_(std::move(limits)), tower_(std::move(tower)), max_bytes_(max_bytes) {
  limits_.geometry = geometry_of(shape_);
}

Result<std::vector<PreparedImage>> ImageEncoder::prepare(const std::vector<ImageReference>& images) const {
  if (images.empty()) return std::vector<PreparedImage>();
  if (!shape_.vision) {
    return invalid_argument(fmt::format(
        "The model {} has no vision tower and reads text only: remove the images, or serve a checkpoint with one.", name_));
  }
  std::vector<ImageSource> sources;
  std::transform(images.begin(), images.end(), std::back_inserter(sources), source_of);
  ImageResolver resolver(limits_);
  auto prepared = resolver.resolve(sources);
  if (prepared) return *std::move(prepared);
  const ImageProblem& problem = prepared.problem();
  return Error{problem.is_retryable() ? ErrorCode::kIo : ErrorCode::kInvalidArgument, problem.message};
}

Result<std::vector<ImageSpan>> ImageEncoder::encode(const std::vector<PreparedImage>& pictures, std::vector<TokenId>& ids) {
  std::vector<ImageSpan> spans;
  if (pictures.empty()) return spans;
  for (const PreparedImage& image : pictures) {
    DI_TRY(const auto rows, rows_of(image));
    ImageSpan& span = spans.emplace_back();
    span.rows = image.tokens;
    span.embeddings = *rows;
    span.content_hash = image.content_hash;
  }
  DI_CHECK_OK(grow_placeholders(shape_.image_id, spans, ids));
  return spans;
}

Result<std::vector<uint16_t>> ImageEncoder::encode_picture(const PreparedImage& image) {
  DI_TRY(const auto rows, rows_of(image));
  return *rows;
}

// Two threads may encode one picture at once, to the same rows: better than one that waits for another's.
Result<std::shared_ptr<const std::vector<uint16_t>>> ImageEncoder::rows_of(const PreparedImage& image) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = index_.find(image.content_hash); found != index_.end() && !image.content_hash.empty()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->rows;
    }
  }
  if (!tower_) return Error{ErrorCode::kUnavailable, "nobody encodes pictures now: try again later"};
  DI_TRY(std::vector<uint16_t> embeddings, tower_(image));
  if (embeddings.size() != static_cast<size_t>(image.tokens) * static_cast<size_t>(shape_.hidden)) {
    return internal_error(fmt::format("a picture of {} tokens came out as {} values", image.tokens, embeddings.size()));
  }
  auto rows = std::make_shared<const std::vector<uint16_t>>(std::move(embeddings));
  const std::lock_guard lock(mutex_);
  ++num_encoded_;
  if (!image.content_hash.empty() && !index_.contains(image.content_hash)) keep({image.content_hash, rows});
  return rows;
}

void ImageEncoder::keep(Entry entry) {
  const auto weight = [](const Entry& e) { return e.rows->size() * sizeof(uint16_t); };
  if (weight(entry) > max_bytes_) return;
  bytes_ += weight(entry);
  entries_.push_front(std::move(entry));
  index_[entries_.front().hash] = entries_.begin();
  while (bytes_ > max_bytes_) {
    bytes_ -= weight(entries_.back());
    index_.erase(entries_.back().hash);
    entries_.pop_back();
  }
}

}  // namespace deepinfer
