// lab/golden_ops.h - the single-operator goldens of a folder: DIR/<checkpoint>/, DIR/golden/{ops,vision}.safetensors.
//
// Each case uploads its inputs, runs the operations of one device, downloads and compares within the bounds of the goldens'
// README. Weights come from the checkpoint by tensor name, sizes from its config and from the files' shapes, so any folder
// of that form works; a case whose tensors are absent is left out.
// Threads: one.
//
//   DI_TRY(GoldenCounts counts, run_ops_goldens("golden/model", *device));
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/model_shape.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "lab/golden_counts.h"
#include "ops/device.h"

namespace deepinfer {

Result<GoldenCounts> run_ops_goldens(const std::string& dir, Device& device);

// ---- shared by the golden_ops*.cc files ------------------------------------------------------------------------------

// Device memory of one case. A failed allocation gives null pointers and shows in ready().
class CaseMemory {
 public:
  explicit CaseMemory(Device& device) : device_(device) {}

  template <class T>
  T* room(int64_t count) {
    auto buffer = device_.allocate(static_cast<size_t>(count + 1) * sizeof(T));
    if (!buffer) {
      status_ = buffer.error();
      return nullptr;
    }
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().as<T>();
  }
  template <class T>
  T* put(std::span<const T> values) {
    T* to = room<T>(static_cast<int64_t>(values.size()));
    if (to) device_.upload(to, values.data(), values.size_bytes());
    if (auto done = device_.wait(device_.record()); !done) status_ = done;
    return to;
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    return put(std::span<const T>(values));
  }
  template <class T>
  std::vector<T> get(const T* from, int64_t count) {
    std::vector<T> out(static_cast<size_t>(count));
    device_.download(out.data(), from, out.size() * sizeof(T));
    if (auto done = device_.wait(device_.record()); !done) status_ = done;
    return out;
  }
  Rows rows(int64_t n) { return {put(std::vector<int32_t>{static_cast<int32_t>(n)}), static_cast<int32_t>(n)}; }
  Matrix matrix(const Matrix& host);
  const Status& ready() const { return status_; }

 private:
  Device& device_;
  std::vector<Buffer> buffers_;
  Status status_;
};

class OpsGoldens {
 public:
  static Result<std::unique_ptr<OpsGoldens>> open(const std::string& dir, Device& device);
  Status run();
  const GoldenCounts& counts() const { return counts_; }

 private:
  OpsGoldens(Device& device, SafetensorsFile ops) : device_(device), ops_(device.ops()), file_(std::move(ops)) {}

  // golden_ops.cc: quantisers, products, norms, rotary
  Status run_q8();
  Status run_q4e8();
  Status run_q4e4();
  Status run_linear8(const std::string& weight);
  Status run_rmsnorm(const std::string& weight);
  Status run_rope(const std::string& table, std::span<const float> freq);
  Status run_rope_release(const std::string& table);
  Status run_head();
  Status run_markov_confidence();
  // golden_ops_blocks.cc: streams, experts, Engram
  Status run_sinkhorn();
  Status run_hyper(const std::string& site);
  Status run_router(const std::string& layer);
  Status run_moe(const std::string& layer);
  Status run_swiglu();
  Status run_engram_tables();
  Status run_engram_hash();
  Status run_engram_release();
  Status run_engram_module(const std::string& layer);
  // golden_ops_attention.cc: compressor, indexer, attention, vision
  Status run_compressor(const std::string& layer);
  Status run_indexer();
  Status run_attention();
  Status run_patch_embed(const SafetensorsFile& vision);
  Status run_vision_rope(const SafetensorsFile& vision);
  Status run_aligner(const SafetensorsFile& vision);

  // Names X of tensors "<prefix>X/<suffix>".
  std::vector<std::string> cases(const std::string& prefix, const std::string& suffix) const;
  // Runs one case; tensors it lacks leave it out.
  template <class F>
  Status run_case(std::vector<std::string> needs, F body);

  // A checkpoint matrix by the name of its tensor without ".weight"; host memory.
  Result<Matrix> matrix(const std::string& name) const;
  template <class T>
  Result<std::span<const T>> weight(const std::string& name, std::vector<int64_t> shape) const;
  int64_t dim(const std::string& tensor, size_t axis) const { return file_.find(tensor)->shape[axis]; }
  // lin8 / lin16 of device rows, BF16 or F32 output.
  template <class Out>
  Out* product(CaseMemory& m, const Bf16* x, int64_t n, const Matrix& host, bool quantized);

  void check(bool holds, const std::string& id, const std::string& detail);
  template <class T>
  void check_equal(std::span<const T> got, std::span<const T> want, const std::string& id);
  void check_below(double value, double bound, const std::string& id);
  // At least `share` equal, none further than `ulps` BF16 steps.
  void check_bf16(std::span<const Bf16> got, std::span<const Bf16> want, int ulps, double share, const std::string& id);

  Device& device_;
  const OpTable& ops_;
  SafetensorsFile file_;
  std::string golden_dir_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  ModelShape shape_;
  GoldenCounts counts_;
};

template <class F>
Status OpsGoldens::run_case(std::vector<std::string> needs, F body) {
  for (const auto& name : needs) {
    if (file_.find(name)) continue;
    counts_.leave_out();
    return {};
  }
  return body();
}

template <class T>
void OpsGoldens::check_equal(std::span<const T> got, std::span<const T> want, const std::string& id) {
  int64_t wrong = got.size() == want.size() ? 0 : -1;
  for (size_t i = 0; wrong >= 0 && i < got.size(); ++i) wrong += std::memcmp(&got[i], &want[i], sizeof(T)) != 0;
  check(wrong == 0, id, std::to_string(wrong) + " of " + std::to_string(want.size()) + " differ");
}

template <class T>
Result<std::span<const T>> OpsGoldens::weight(const std::string& name, std::vector<int64_t> shape) const {
  const TensorView* tensor = checkpoint_->find(name);
  if (!tensor) return not_found(checkpoint_->path() + " has no tensor " + name + ", which a golden case needs");
  DI_CHECK_OK(check_tensor(*tensor, TensorTypeOf<T>::value, shape));
  return tensor->as<T>();
}

template <class Out>
Out* OpsGoldens::product(CaseMemory& m, const Bf16* x, int64_t n, const Matrix& host, bool quantized) {
  Out* y = m.room<Out>(n * host.n);
  MatmulParams p = {};
  p.rows = m.rows(n);
  p.w = m.matrix(host);
  p.groups = 1;
  p.y = y;
  p.y_type = sizeof(Out) == 4 ? OutputType::kF32 : OutputType::kBf16;
  p.y_stride = host.n;
  p.y_scale = 1.0f;
  if (quantized) {
    auto* codes = m.room<uint8_t>(n * host.k);
    auto* scales = m.room<uint8_t>(n * host.k / 32);
    if (!m.ready()) return y;
    ops_.quantize({p.rows, x, codes, scales, host.k});
    p.codes = codes;
    p.scales = scales;
  } else {
    p.x = x;
    p.x_stride = host.k;
  }
  if (m.ready()) ops_.matmul(p);
  return y;
}

}  // namespace deepinfer
