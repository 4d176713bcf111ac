// lab/model_harness.h - a model with its own state memory and no engine: one slot per sequence, pages in order.
//
// What goldens, kernel benches and model tests need: run rows at given positions, look at logits, pages and state bytes.
// Promise: every call has finished on the device when it returns.
// Threads: one.
//
//   DI_TRY(auto harness, ModelHarness::create(device, model, {.max_rows = 700, .max_context = 1024}));
//   DI_CHECK_OK(harness->run({.tokens = ids, .num_logits = 4}));
//   DI_TRY(auto logits, harness->logits(4));
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/v41_model.h"

namespace deepinfer {

struct HarnessOptions {
  int32_t slots = 1;
  int32_t max_rows = 512;
  int32_t max_logits = 8;
  int64_t max_context = 4096;
  int32_t max_drafts = 0;
  bool keep_scores = false;
};

// Consecutive tokens of one sequence.
struct HarnessRun {
  std::span<const TokenId> tokens;
  SlotId slot = 0;
  Position begin = 0;
  Position decoder_begin = 0;
  Position window_floor = 0;
  int32_t num_logits = 1;
  bool truncate_candidate_window = false;
  std::span<const ImageRows> images = {};
};

class ModelHarness {
 public:
  static Result<std::unique_ptr<ModelHarness>> create(Device& device, const V41Model& model, const HarnessOptions& options);

  Device& device() { return device_; }
  const V41Model& model() const { return model_; }
  V41Workspace& workspace() { return *workspace_; }
  StateView state() const;

  Status run(const HarnessRun& run);
  Status run_plan(const StepPlan& plan);
  // The first `rows` logit rows of the last run.
  Result<std::vector<float>> logits(int32_t rows);
  // Forgets everything: state blocks and pages become zero.
  Status reset();

  template <class T>
  Result<std::vector<T>> download(const void* device_pointer, int64_t count) {
    std::vector<T> out(static_cast<size_t>(count));
    device_.download(out.data(), device_pointer, out.size() * sizeof(T));
    DI_CHECK_OK(device_.wait(device_.record()));
    return out;
  }
  // Dequantised entries [0, count) of a KV source's pages for a slot: FP32 [count, head_dim] or index keys [count, index_dim].
  Result<std::vector<float>> main_entries(int32_t layer, int64_t count, SlotId slot = 0);
  Result<std::vector<float>> index_keys(int32_t layer, int64_t count, SlotId slot = 0);
  // All bytes of the pages of a slot that hold `tokens` tokens, then its state block.
  Result<std::vector<uint8_t>> page_bytes(int64_t tokens, SlotId slot = 0);
  Result<std::vector<uint8_t>> state_bytes(SlotId slot = 0);

 private:
  ModelHarness(Device& device, const V41Model& model) : device_(device), model_(model) {}

  Device& device_;
  const V41Model& model_;
  std::unique_ptr<V41Workspace> workspace_;
  Buffer states_, pages_, table_;
  int64_t pages_per_slot_ = 0;
};

}  // namespace deepinfer
