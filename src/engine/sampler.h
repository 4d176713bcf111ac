// engine/sampler.h - draws the next token of each logit row on the device.
//
// Gathers the settings of the rows (bias, token counts, mask, seed and position) into staging memory, uploads it, enqueues one
// sample operation and the download of its results. The draw is keyed by seed and position, so nothing here knows which
// rows came before (determinism.md section 6).
// Promise: staging and results stay untouched from enqueue() until the next one. Device memory grows only when bias or
// counts outgrow what was seen before.
// REQUIRES: the work of enqueue() has been waited for before enqueue() is called again.
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/mask_worker.h"
#include "engine/sequence.h"
#include "ops/device.h"

namespace deepinfer {

// How `sequence` draws the token `ahead` positions behind its tokens, without bias and penalties.
SampleRow draw_settings(const Sequence& sequence, int32_t ahead);

class Sampler {
 public:
  // `rejects`: rows may verify drafts by rejection, which takes twice the scratch memory.
  static Result<std::unique_ptr<Sampler>> create(Device& device, int32_t vocab, int32_t max_rows, bool rejects);

  // Begins the masks of a step's rows beside what runs next; enqueue() or drop_masks() ends that. Rows of one sequence lie
  // together, by growing number of drafts.
  void begin_masks(std::span<const DrawRow> rows) { mask_worker_.begin(rows, vocab_); }
  void drop_masks() { mask_worker_.finish(); }
  // Of a row of the last enqueue().
  MaskFill mask_state(size_t row) const { return mask_worker_.state(row); }
  // Row i of `logits` is drawn for rows[i], those of begin_masks(). `draft_logits`: what the drafts to reject were drawn from,
  // null = no row rejects. REQUIRES: with them, create() was told so.
  Status enqueue(std::span<const DrawRow> rows, const float* logits, const float* draft_logits);
  // Of the last enqueue(), after its work was waited for.
  const SampleResult& result(size_t row) const { return host_results_[row]; }
  // The same on the device, for work behind enqueue().
  const SampleResult* results() const { return results_.as<SampleResult>(); }

 private:
  Sampler(Device& device, int32_t vocab, int32_t max_rows) : device_(device), vocab_(vocab), max_rows_(max_rows) {}
  void add_row(const DrawRow& draw);
  // Makes `buffer` hold `bytes` and uploads `data` to it.
  Status upload(Buffer& buffer, const void* data, size_t bytes);

  Device& device_;
  const int32_t vocab_;
  const int32_t max_rows_;
  Buffer count_, settings_, bias_ids_, bias_values_, history_, masks_, scratch_, results_;
  int32_t host_count_ = 0;
  std::vector<SampleRow> host_settings_;
  std::vector<int32_t> host_bias_ids_, host_history_;
  std::vector<float> host_bias_values_;
  std::vector<SampleResult> host_results_;
  MaskWorker mask_worker_;
};

}  // namespace deepinfer
