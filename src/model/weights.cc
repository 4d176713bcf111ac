#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/function_ref.h"
#include "formats/message.h"
#include "formats/value_scan.h"

namespace deepinfer {
namespace {

// Where a tensor's bytes come from; null where there are none (yet).
using TensorSource = FunctionRef<const uint8_t*(TensorSpec)>;

// The one list of what a checkpoint consists of: walks a Weights in checkpoint order and asks the source for each tensor.
class WeightWalk {
 public:
  WeightWalk(const ModelShape& shape, TensorSource source) : shape_(shape), source_(source) {}

  void all(Weights& out) {
    const int64_t d = shape_.hidden, v = shape_.vocab;
    out.embed = bf16("embed.weight", v, d);
    out.head = bf16("head.weight", v, d);
    out.norm = vector<Bf16>("norm.weight", {d});
    // A text-only checkpoint may carry the learned image rows, but nobody reads them.
    const bool optional = !shape_.vision.has_value();
    out.image_start = vector<Bf16>("image_start", {d}, optional);
    out.image_end = vector<Bf16>("image_end", {d}, optional);
    out.image_newline = vector<Bf16>("image_newline", {d}, optional);
    out.layers.resize(static_cast<size_t>(shape_.layers));
    out.engram.resize(shape_.engram_layers.size());
    for (int32_t l = 0; l < shape_.layers; ++l) {
      const std::string prefix = fmt::format("layers.{}.", l);
      const LayerPlan& plan = shape_.plan[static_cast<size_t>(l)];
      LayerWeights& layer = out.layers[static_cast<size_t>(l)];
      block(prefix, layer, shape_.experts);
      if (plan.kv_source == l) compressor(prefix + "attn.", layer.compressor.emplace(), plan.ratio);
      if (plan.index_source == l) indexer(prefix + "attn.indexer.", layer.indexer.emplace());
      if (plan.engram >= 0) engram(prefix + "engram.", static_cast<size_t>(plan.engram), out);
    }
    out.draft.resize(static_cast<size_t>(shape_.draft_stages));
    for (int32_t s = 0; s < shape_.draft_stages; ++s) {
      block(fmt::format("mtp.{}.", s), out.draft[static_cast<size_t>(s)], shape_.draft_experts);
    }
    if (shape_.draft_stages > 0) draft_extra(out.draft_extra.emplace());
    if (shape_.vision) vision(*shape_.vision, out.vision.emplace());
  }

 private:
  template <class T>
  const T* vector(std::string name, std::vector<int64_t> dims, bool optional = false) {
    return reinterpret_cast<const T*>(source_(TensorSpec{std::move(name), TensorTypeOf<T>::value, std::move(dims), optional}));
  }

  Matrix bf16(std::string name, int64_t n, int64_t k) {
    const uint8_t* data = source_(TensorSpec{std::move(name), TensorType::kBf16, {n, k}});
    return {WeightFormat::kBf16, data, nullptr, static_cast<int32_t>(n), static_cast<int32_t>(k)};
  }

  Matrix f8(const std::string& name, int64_t n, int64_t k) {
    const uint8_t* data = source_(TensorSpec{name + ".weight", TensorType::kF8E4m3, {n, k}});
    const uint8_t* scales = source_(TensorSpec{name + ".scale", TensorType::kF8E8m0, {(n + 31) / 32, k / 32}});
    return {WeightFormat::kF8Tile, data, scales, static_cast<int32_t>(n), static_cast<int32_t>(k)};
  }

  Matrix fp4(const std::string& name, int64_t n, int64_t k) {
    const uint8_t* data = source_(TensorSpec{name + ".weight", TensorType::kI8, {n, k / 2}});
    const uint8_t* scales = source_(TensorSpec{name + ".scale", TensorType::kF8E8m0, {n, k / 32}});
    return {WeightFormat::kFp4, data, scales, static_cast<int32_t>(n), static_cast<int32_t>(k)};
  }

  void hyper(const std::string& name, HyperWeights& out) {
    const int64_t s = shape_.streams, mixes = 2 * s + s * s;
    out.fn = vector<float>(name + "_fn", {mixes, s * shape_.hidden});
    out.base = vector<float>(name + "_base", {mixes});
    out.scale = vector<float>(name + "_scale", {3});
  }

  void attention(const std::string& p, LayerWeights& out) {
    const int64_t d = shape_.hidden, hd = shape_.head_dim, h = shape_.heads, ql = shape_.q_rank;
    const int64_t og = shape_.o_groups, ol = shape_.o_rank;
    out.wq_a = f8(p + "wq_a", ql, d);
    out.q_norm = vector<Bf16>(p + "q_norm.weight", {ql});
    out.wq_b = f8(p + "wq_b", h * hd, ql);
    out.wkv = f8(p + "wkv", hd, d);
    out.kv_norm = vector<Bf16>(p + "kv_norm.weight", {hd});
    out.sink = vector<float>(p + "attn_sink", {h});
    out.wo_a = f8(p + "wo_a", og * ol, h * hd / og);
    out.wo_b = f8(p + "wo_b", d, og * ol);
  }

  void ffn(const std::string& p, LayerWeights& out, int64_t experts) {
    const int64_t d = shape_.hidden, i = shape_.expert_hidden;
    out.gate = bf16(p + "gate.weight", experts, d);
    out.gate_bias = vector<float>(p + "gate.bias", {experts});
    out.gate_bias_image = vector<float>(p + "gate.bias_vl", {experts});
    out.shared.w1 = f8(p + "shared_experts.w1", i, d);
    out.shared.w2 = f8(p + "shared_experts.w2", d, i);
    out.shared.w3 = f8(p + "shared_experts.w3", i, d);
    out.w1.reserve(static_cast<size_t>(experts));
    out.w2.reserve(static_cast<size_t>(experts));
    out.w3.reserve(static_cast<size_t>(experts));
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", p, e);
      out.w1.push_back(fp4(expert + "w1", i, d));
      out.w2.push_back(fp4(expert + "w2", d, i));
      out.w3.push_back(fp4(expert + "w3", i, d));
    }
  }

  void block(const std::string& p, LayerWeights& out, int64_t experts) {
    out.attn_norm = vector<Bf16>(p + "attn_norm.weight", {shape_.hidden});
    out.ffn_norm = vector<Bf16>(p + "ffn_norm.weight", {shape_.hidden});
    attention(p + "attn.", out);
    hyper(p + "hc_attn", out.hc_attn);
    hyper(p + "hc_ffn", out.hc_ffn);
    ffn(p + "ffn.", out, experts);
  }

  void compressor(const std::string& p, CompressorWeights& out, int32_t ratio) {
    const int64_t d = shape_.hidden, hd = shape_.head_dim, id = shape_.index_dim;
    out.wkv = bf16(p + "compressor.wkv.weight", hd, d);
    if (ratio == 2) out.wgate = bf16(p + "compressor.wgate.weight", hd, d);
    out.norm = vector<Bf16>(p + "compressor.norm.weight", {hd});
    out.wk = bf16(p + "indexer.wk.weight", id, hd);
    out.k_norm = vector<Bf16>(p + "indexer.k_norm.weight", {id});
  }

  void indexer(const std::string& p, IndexerWeights& out) {
    out.wq_b = f8(p + "wq_b", int64_t{shape_.index_heads} * shape_.index_dim, shape_.q_rank);
    out.weights_proj = bf16(p + "weights_proj.weight", shape_.index_heads, shape_.hidden);
  }

  void engram(const std::string& p, size_t index, Weights& out) {
    const int64_t rows = shape_.engram_rows[index], dim = shape_.engram_dim, s = shape_.streams, d = shape_.hidden;
    EngramWeights& engram = out.engram[index];
    engram.codes = source_(TensorSpec{p + "embed.weight", TensorType::kF8E4m3, {rows, dim}});
    engram.scales = source_(TensorSpec{p + "embed.scale", TensorType::kF8E8m0, {rows, dim / 32}});
    engram.wkv = f8(p + "wkv", (s + 1) * d, shape_.engram_columns() * dim);
    engram.q_weight = vector<Bf16>(p + "q_weight", {s, d});
    engram.k_weight = vector<Bf16>(p + "k_weight", {s, d});
  }

  void draft_extra(DraftExtra& out) {
    const int64_t d = shape_.hidden, r = shape_.markov_rank, v = shape_.vocab;
    const auto targets = static_cast<int64_t>(shape_.draft_targets.size());
    const std::string last = fmt::format("mtp.{}.", shape_.draft_stages - 1);
    out.main_proj = f8("mtp.0.main_proj", d, targets * d);
    out.main_norm = vector<Bf16>("mtp.0.main_norm.weight", {d});
    out.norm = vector<Bf16>(last + "norm.weight", {d});
    out.markov_embed = bf16(last + "markov_head.embed.weight", v, r);
    out.markov_head = bf16(last + "markov_head.head.weight", v, r);
    out.confidence = vector<Bf16>(last + "confidence_head.proj.weight", {1, d + r});
  }

  void vision(const VisionShape& shape, VisionWeights& out) {
    const int64_t vd = shape.hidden, vi = shape.intermediate, d = shape_.hidden;
    out.patch_embed = bf16("vision.patch_embed.proj.weight", vd, int64_t{3} * shape.patch * shape.patch);
    out.patch_bias = vector<Bf16>("vision.patch_embed.proj.bias", {vd});
    out.blocks.resize(static_cast<size_t>(shape.layers));
    for (int32_t b = 0; b < shape.layers; ++b) {
      const std::string p = fmt::format("vision.blocks.{}.", b);
      VisionBlockWeights& block = out.blocks[static_cast<size_t>(b)];
      block.norm1 = vector<Bf16>(p + "norm1.weight", {vd});
      block.norm2 = vector<Bf16>(p + "norm2.weight", {vd});
      block.wqkv = bf16(p + "attn.wqkv.weight", 3 * vd, vd);
      block.wqkv_bias = vector<Bf16>(p + "attn.wqkv.bias", {3 * vd});
      block.wo = bf16(p + "attn.wo.weight", vd, vd);
      block.wo_bias = vector<Bf16>(p + "attn.wo.bias", {vd});
      block.w1 = bf16(p + "mlp.w1.weight", 2 * vi, vd);
      block.w2 = bf16(p + "mlp.w2.weight", vd, vi);
    }
    out.norm = vector<Bf16>("vision.norm.weight", {vd});
    out.aligner_w1 = bf16("aligner.w1.weight", d, int64_t{shape.downsample} * shape.downsample * vd);
    out.aligner_b1 = vector<Bf16>("aligner.w1.bias", {d});
    out.aligner_w2 = bf16("aligner.w2.weight", d, d);
    out.aligner_b2 = vector<Bf16>("aligner.w2.bias", {d});
  }

  const ModelShape& shape_;
  TensorSource source_;
};

// Scales and vectors are small and decide whether anything works; codes and BF16 matrices are nearly all of the bytes.
bool is_bulk(const TensorSpec& spec) {
  const bool matrix = spec.type == TensorType::kF8E4m3 || (spec.type == TensorType::kBf16 && spec.shape.size() > 1);
  return matrix || spec.name.ends_with("engram.embed.scale");
}

// What encode_image() reads.
bool is_of_pictures(std::string_view name) {
  return name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_");
}

Error value_error(const TensorView& tensor, int64_t index) {
  const int64_t width = tensor.shape.empty() ? 1 : tensor.shape.back();
  const char* fault = tensor.type == TensorType::kF8E4m3 || tensor.type == TensorType::kF8E8m0 ? "NaN" : "NaN or infinite";
  const std::string place =
      tensor.shape.size() > 1 ? fmt::format("row {}, column {}", index / width, index % width) : fmt::format("element {}", index);
  return corrupt(fmt::format("{}: tensor {}: {} at {} is {}", *tensor.file, quoted(tensor.name), tensor_type_name(tensor.type),
                             place, fault));
}

// Looks tensors up in a checkpoint, checks them, and keeps the first fault.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const BindOptions& options)
      : checkpoint_(checkpoint), options_(options), scan_bulk_(checkpoint.tensor_bytes() < options.scan_codes_below) {}

  const uint8_t* operator()(const TensorSpec& spec) {
    if (fault_) return nullptr;
    const TensorView* tensor = checkpoint_.find(spec.name);
    if (!tensor) {
      if (!spec.optional)
        fail(not_found(fmt::format("{}: tensor {} is missing: {} {} expected", checkpoint_.path(), quoted(spec.name),
                                   tensor_type_name(spec.type), shape_text(spec.shape))));
      return nullptr;
    }
    if (auto status = check_tensor(*tensor, spec.type, spec.shape); !status) return fail(status.error());
    if (options_.pictures_only ? is_of_pictures(spec.name) : scan_bulk_ || !is_bulk(spec)) {
      if (const int64_t bad = first_invalid_value(*tensor); bad >= 0) return fail(value_error(*tensor, bad));
    }
    report(static_cast<int64_t>(tensor->data.size()));
    return tensor->data.data();
  }

  const std::optional<Error>& fault() const { return fault_; }

 private:
  const uint8_t* fail(Error error) {
    fault_ = std::move(error);
    return nullptr;
  }

  void report(int64_t bytes) {
    constexpr int64_t kStep = int64_t{4} << 20;
    done_ += bytes;
    if (!options_.progress || done_ - reported_ < kStep || done_ >= checkpoint_.tensor_bytes()) return;
    reported_ = done_;
    options_.progress(done_, checkpoint_.tensor_bytes());
  }

  const Checkpoint& checkpoint_;
  const BindOptions& options_;
  const bool scan_bulk_;
  std::optional<Error> fault_;
  int64_t done_ = 0, reported_ = 0;
};

}  // namespace

std::vector<Matrix*> product_weights(Weights& weights) {
  std::vector<Matrix*> out;
  const auto add = [&](auto&... list) {
    for (Matrix* w : {&list...}) {
      if (w->data) out.push_back(w);
    }
  };
  for (std::vector<LayerWeights>* layers : {&weights.layers, &weights.draft}) {
    for (LayerWeights& l : *layers) {
      add(l.wq_a, l.wq_b, l.wkv, l.wo_a, l.wo_b, l.gate, l.shared.w1, l.shared.w2, l.shared.w3);
      if (l.compressor) add(l.compressor->wkv, l.compressor->wgate, l.compressor->wk);
      if (l.indexer) add(l.indexer->wq_b, l.indexer->weights_proj);
      for (std::vector<Matrix>* experts : {&l.w1, &l.w2, &l.w3}) {
        for (Matrix& w : *experts) add(w);
      }
    }
  }
  for (EngramWeights& engram : weights.engram) add(engram.wkv);
  if (weights.draft_extra) add(weights.draft_extra->main_proj);
  if (weights.vision) {
    add(weights.vision->patch_embed, weights.vision->aligner_w1, weights.vision->aligner_w2);
    for (VisionBlockWeights& block : weights.vision->blocks) add(block.wqkv, block.wo, block.w1, block.w2);
  }
  add(weights.head);
  return out;
}

std::vector<TensorSpec> expected_tensors(const ModelShape& shape) {
  std::vector<TensorSpec> out;
  Weights unbound;
  WeightWalk(shape, [&](TensorSpec spec) -> const uint8_t* {
    out.push_back(std::move(spec));
    return nullptr;
  }).all(unbound);
  return out;
}

namespace {

constexpr int64_t kUploadAlignment = 128;
constexpr int64_t kUploadPiece = int64_t{1} << 30;  // a buffer holds tensors up to this, or one larger tensor
int64_t upload_bytes(const TensorView& tensor) {
  return (static_cast<int64_t>(tensor.data.size()) + kUploadAlignment - 1) / kUploadAlignment * kUploadAlignment;
}
bool stays_on_host(const TensorSpec& spec) { return spec.name.starts_with("image_"); }
// Tables larger than a device's memory, of which a step reads a few rows.
bool is_read_from_host(std::string_view name) { return name.find("engram.embed.") != std::string_view::npos; }

// Gives each tensor its place on the device, and the bytes.
class Uploader {
 public:
  Uploader(Device& device, const Checkpoint& checkpoint, const LoadProgress& progress, bool pictures_only)
      : device_(device), checkpoint_(checkpoint), progress_(progress), pictures_only_(pictures_only) {
    for (const TensorView& tensor : checkpoint.tensors()) {
      if (is_wanted(tensor.name) && !is_read_from_host(tensor.name)) left_ += upload_bytes(tensor);
    }
  }

  const uint8_t* operator()(const TensorSpec& spec) {
    const TensorView* tensor = checkpoint_.find(spec.name);
    if (!tensor || fault_ || !is_wanted(spec.name)) return nullptr;
    if (is_read_from_host(spec.name)) return copy_on_host(*tensor);
    const int64_t bytes = upload_bytes(*tensor);
    left_ -= bytes;
    if (stays_on_host(spec)) return tensor->data.data();
    if (used_ + bytes > room_) {
      auto buffer = device_.allocate(static_cast<size_t>(std::max(bytes, std::min(kUploadPiece, left_ + bytes))));
      if (!buffer) return fail(buffer.error());
      room_ = static_cast<int64_t>(buffer->bytes());
      used_ = 0;
      buffers_.push_back(*std::move(buffer));
    }
    auto* to = buffers_.back().as<uint8_t>(static_cast<size_t>(used_));
    device_.upload(to, tensor->data.data(), tensor->data.size());
    used_ += bytes;
    report(static_cast<int64_t>(tensor->data.size()));
    return to;
  }

  const std::optional<Error>& fault() const { return fault_; }
  std::vector<Buffer> take() {
    std::move(on_host_.begin(), on_host_.end(), std::back_inserter(buffers_));
    return std::move(buffers_);
  }

 private:
  bool is_wanted(std::string_view name) const { return !pictures_only_ || is_of_pictures(name); }
  const uint8_t* copy_on_host(const TensorView& tensor) {
    auto buffer = device_.allocate_on_host(tensor.data.size());
    if (!buffer) return fail(buffer.error());
    auto* const to = buffer->as<uint8_t>();
    for (size_t at = 0; at < tensor.data.size(); at += kUploadPiece) {
      const size_t part = std::min(tensor.data.size() - at, static_cast<size_t>(kUploadPiece));
      std::memcpy(to + at, tensor.data.data() + at, part);
      report(static_cast<int64_t>(part));
    }
    on_host_.push_back(*std::move(buffer));
    return to;
  }
  const uint8_t* fail(const Error& error) {
    fault_ =
        Error{error.code, fmt::format("{} (weights of {:.2f} GB; {:.2f} GB of them fitted)", error.message,
                                      static_cast<double>(checkpoint_.tensor_bytes()) / 1e9, static_cast<double>(done_) / 1e9)};
    return nullptr;
  }
  void report(int64_t bytes) {
    done_ += bytes;
    if (progress_ && done_ < checkpoint_.tensor_bytes()) progress_(done_, checkpoint_.tensor_bytes());
  }

  Device& device_;
  const Checkpoint& checkpoint_;
  const LoadProgress& progress_;
  const bool pictures_only_;
  std::vector<Buffer> buffers_, on_host_;
  int64_t room_ = 0, used_ = 0, done_ = 0, left_ = 0;
  std::optional<Error> fault_;
};

}  // namespace

Result<std::vector<Buffer>> upload_weights(Device& device, const ModelShape& shape, Weights& weights,
                                           const LoadProgress& progress, bool pictures_only) {
  const int64_t total = weights.checkpoint->tensor_bytes();
  Uploader uploader(device, *weights.checkpoint, progress, pictures_only);
  std::shared_ptr<const Checkpoint> checkpoint = weights.checkpoint;
  weights = Weights{};
  WeightWalk(shape, uploader).all(weights);
  weights.checkpoint = std::move(checkpoint);
  if (uploader.fault()) return *uploader.fault();
  DI_CHECK_OK(device.wait(device.record()));
  if (progress) progress(total, total);
  return uploader.take();
}

Result<Weights> bind_weights(std::shared_ptr<const Checkpoint> checkpoint, const ModelShape& shape, const BindOptions& options) {
  Weights out;
  Binder binder(*checkpoint, options);
  WeightWalk(shape, binder).all(out);
  if (binder.fault()) return *binder.fault();
  if (options.progress) options.progress(checkpoint->tensor_bytes(), checkpoint->tensor_bytes());
  out.checkpoint = std::move(checkpoint);
  return out;
}

}  // namespace deepinfer
