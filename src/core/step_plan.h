// core/step_plan.h - what one step of the engine computes, as plain, serialisable data.
//
// A step runs rows; a row is (sequence slot, position, token). Rows of one sequence are consecutive positions and lie
// together. Row sets are nested: encoder rows (all) contain decoder rows contain logit rows, because bounded replay stops
// most prefill rows after the candidate layer's compressor (architecture decision 2; kv_cache.md section 4).
// Rank 0 makes the plan; each rank executes the rows of its own sequences (take_rank), on this machine or, as bytes, on another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/types.h"

namespace deepinfer {

// Consecutive positions of one sequence in one step.
struct SequenceRows {
  RequestId request = 0;  // whose rows, for traces: nothing is computed from it
  SlotId slot = 0;
  Position begin = 0;       // absolute position of the first row
  int32_t count = 0;        // rows
  int32_t first_token = 0;  // index of the first row's token in StepPlan::tokens
  // Rows at positions >= decoder_begin run all layers; earlier rows stop after the candidate layer's compressor.
  Position decoder_begin = 0;
  // Start s of the bounded replay: layers after the candidate layer see window keys at positions >= window_floor only.
  Position window_floor = 0;
  // The same limit in all layers up to the candidate layer; > 0 only after an encoder replay (mode `full`).
  Position encoder_window_floor = 0;
  // Global entries of tokens at positions < write_floor belong to cached pages and are not rewritten.
  Position write_floor = 0;
  // Length of the original prompt: tokens at later positions were generated.
  Position prompt_tokens = 0;
  // The last num_logits rows yield logits, in row order.
  int32_t num_logits = 0;
  int32_t rank = 0;  // owns the sequence for as long as it lives
};

// Rows that continue an answer, with or without drafts behind them; the last row of a prompt is not one.
inline bool is_decode(const SequenceRows& rows) {
  return rows.num_logits > 0 && rows.count == rows.num_logits && rows.begin >= rows.prompt_tokens;
}

// Embedding rows of an image for the tokens [token_begin, token_begin + rows) of the step.
struct ImageRows {
  int32_t token_begin = 0, rows = 0;
  const uint16_t* embeddings = nullptr;  // BF16 [rows, hidden], host memory, valid until the step has run
};

// Stands for a token that the step before is about to draw, as result `draw` of it: the device puts the token in
// (StateView::draws).
inline TokenId token_of_draw(int32_t draw) { return -1 - draw; }
inline int32_t draw_of_token(TokenId token) { return -1 - token; }

struct StepPlan {
  std::vector<TokenId> tokens;  // or token_of_draw()
  std::vector<SequenceRows> sequences;
  std::vector<ImageRows> images;
  // The candidate layer's own window is cut at window_floor, too (`trunc` of the goldens; the product keeps true windows).
  bool truncate_candidate_window = false;

  int32_t num_rows() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_logits() const {
    int32_t sum = 0;
    for (const auto& sequence : sequences) sum += sequence.num_logits;
    return sum;
  }
};

// The rows of one rank as a plan of its own; the vectors of `out` are reused.
void take_rank(const StepPlan& plan, int32_t rank, StepPlan& out);

// A plan for a rank in another process, and back: any bytes give a plan whose parts fit each other, or an Error. Images travel
// with their rows, `hidden` wide; in a plan that was read they lie in `bytes`, which must outlive it and be aligned to 2.
std::vector<uint8_t> encode_plan(const StepPlan& plan, int32_t hidden);
Result<StepPlan> decode_plan(std::span<const uint8_t> bytes, int32_t hidden);

}  // namespace deepinfer
