// lab/golden_model.h - runs the model goldens of a folder: DIR/<checkpoint>/ and DIR/golden/*.safetensors.
//
// Teacher-forced layers, free-running prefill, forced decode, draft passes, bounded replay, vision; bounds of the goldens'
// own README. Works on any checkpoint of that form; golden/stats.json says whether the checkpoint has planted structure
// (then selections and experts must match exactly) or is a trained one (then by score margins).
//
//   DI_TRY(GoldenCounts counts, run_model_goldens("golden/model", device));
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/safetensors.h"
#include "lab/golden_counts.h"
#include "lab/model_harness.h"

namespace deepinfer {

bool is_model_golden_folder(const std::string& dir);
Result<GoldenCounts> run_model_goldens(const std::string& dir, Device& device);

// ---- shared by the golden_model_*.cc files ---------------------------------------------------------------------------

struct GoldenPrompt {
  std::string name;
  std::vector<TokenId> ids;
  bool image = false;
  int32_t image_begin = 0;
};

// Values of a pass, downloaded as it was enqueued.
class PassRecorder {
 public:
  explicit PassRecorder(Device& device) : device_(device) {}
  Probe probe();
  bool has(const std::string& name, int32_t layer) const { return values_.count({name, layer}) > 0; }
  // All rows, as raw elements.
  template <class T>
  std::vector<T> rows(const std::string& name, int32_t layer) const;
  // The last n rows of a BF16 or F32 value, as FP32.
  std::vector<float> last_bf16(const std::string& name, int32_t layer, int64_t n) const;
  std::vector<float> last_f32(const std::string& name, int32_t layer, int64_t n) const;
  int64_t row_bytes(const std::string& name, int32_t layer) const { return values_.at({name, layer}).row_bytes; }

 private:
  struct Value {
    std::vector<uint8_t> bytes;
    int64_t row_bytes = 0;
  };
  Device& device_;
  std::map<std::pair<std::string, int32_t>, Value> values_;
};

// FP32 values of a BF16 or F32 tensor.
std::vector<float> tensor_floats(const TensorView& tensor);
std::vector<float> bf16_floats(std::span<const Bf16> values);

class ModelGoldens {
 public:
  static Result<std::unique_ptr<ModelGoldens>> open(const std::string& dir, Device& device);

  Status run();
  const GoldenCounts& counts() const { return counts_; }

 private:
  friend class PromptGoldens;
  explicit ModelGoldens(Device& device) : device_(device) {}
  Status load_model(const std::string& checkpoint_dir);
  Status load_prompts();
  Result<SafetensorsFile> file(const std::string& name) const;
  bool has_file(const std::string& name) const;

  // A case passes when `holds`; else it fails with the text.
  void check(bool holds, const std::string& id, const std::string& detail);
  void check_below(double value, double bound, const std::string& id);
  // RMS, maximum and correlation of logits (bounds of the README, scaled for checkpoints without planted structure).
  void check_confidence(std::span<const float> got, std::span<const float> want, const std::string& id);
  void check_logits(std::span<const float> got, std::span<const float> want, const std::string& id);

  Status run_prefill(const GoldenPrompt& prompt);
  Status run_forced_layers(const GoldenPrompt& prompt);
  Status run_decode(const GoldenPrompt& prompt);
  Status run_replay();
  Status run_vision();

  void check_experts(const GoldenPrompt& prompt, const SafetensorsFile& golden, const PassRecorder& got);
  void check_selection(const GoldenPrompt& prompt, const SafetensorsFile& golden, const PassRecorder& got, int64_t n,
                       double margin);
  void check_selected_rows(const GoldenPrompt& prompt, const std::string& id, int32_t layer, std::span<const int32_t> got,
                           std::span<const int32_t> want, std::span<const float> scores, double margin);
  Status check_caches(const GoldenPrompt& prompt, const SafetensorsFile& golden, ModelHarness& harness, bool forced);
  Status check_draft(const SafetensorsFile& golden, const std::string& step, Position last, TokenId next, const std::string& id,
                     ModelHarness& harness);
  double residual_bound(int32_t layer) const;
  std::vector<ImageRows> image_rows(const GoldenPrompt& prompt) const;

  Device& device_;
  std::string dir_, golden_dir_;
  bool planted_ = false;
  std::unique_ptr<V41Model> model_;
  std::vector<GoldenPrompt> prompts_;
  std::vector<uint16_t> image_embeddings_;
  GoldenCounts counts_;
};

}  // namespace deepinfer
