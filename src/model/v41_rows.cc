#include "model/v41_rows.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int64_t kAlignment = 64;

// Hands out consecutive aligned arrays of a block; with a null block it only measures.
class Carver {
 public:
  explicit Carver(uint8_t* block) : block_(block) {}
  template <class T>
  T* take(int64_t count) {
    T* out = reinterpret_cast<T*>(block_ + at_);
    at_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return out;
  }
  int64_t bytes() const { return at_; }

 private:
  uint8_t* block_;
  int64_t at_ = 0;
};

RowArrays carve_rows(Carver& carver, int32_t n) {
  RowArrays out;
  out.count = carver.take<int32_t>(1);
  out.source = carver.take<int32_t>(n);
  out.slots = carver.take<int32_t>(n);
  out.positions = carver.take<int32_t>(n);
  out.spans = carver.take<WindowSpan>(n);
  out.spans_candidate = carver.take<WindowSpan>(n);
  out.is_image = carver.take<uint8_t>(n);
  out.ring_write = carver.take<uint8_t>(n);
  out.entry_write = carver.take<uint8_t>(n);
  return out;
}

StepArrays carve(Carver& carver, int32_t max_rows, int32_t max_logits) {
  StepArrays out;
  out.encoder = carve_rows(carver, max_rows);
  out.decoder = carve_rows(carver, max_rows);
  out.tokens = carver.take<int32_t>(max_rows);
  out.image_row = carver.take<int32_t>(max_rows);
  out.logit_count = carver.take<int32_t>(1);
  out.logit_source = carver.take<int32_t>(max_logits);
  return out;
}

// The window of a query at `position` down to `floor`, when the step's own rows of that sequence start at position
// `batch_position` in row `batch_row`.
WindowSpan window_span(Position position, int32_t window, Position floor, Position batch_position, int32_t batch_row) {
  const Position low = std::max(floor, position - window + 1);
  const Position ring_end = std::max(low, batch_position);
  const auto row_of = [&](Position p) { return batch_row + static_cast<int32_t>(p - batch_position); };
  return {static_cast<int32_t>(low), static_cast<int32_t>(ring_end), row_of(ring_end), row_of(position) + 1};
}

void fill_row(const RowArrays& rows, int32_t r, const SequenceRows& sequence, Position position, int32_t ring_slots) {
  rows.slots[r] = sequence.slot;
  rows.positions[r] = static_cast<int32_t>(position);
  rows.is_image[r] = 0;
  rows.ring_write[r] = position >= sequence.begin + sequence.count - ring_slots;
  rows.entry_write[r] = position >= sequence.write_floor;
}

}  // namespace

StepArraysLayout::StepArraysLayout(int32_t max_rows, int32_t max_logits) : max_rows_(max_rows), max_logits_(max_logits) {
  Carver carver(nullptr);
  carve(carver, max_rows, max_logits);
  bytes_ = carver.bytes();
}

StepArrays StepArraysLayout::at(uint8_t* block) const {
  Carver carver(block);
  return carve(carver, max_rows_, max_logits_);
}

int32_t count_decoder_rows(const StepPlan& plan) {
  Position rows = 0;
  for (const SequenceRows& sequence : plan.sequences) {
    const Position end = sequence.begin + sequence.count;
    rows += end - std::clamp(sequence.decoder_begin, sequence.begin, end);
  }
  return static_cast<int32_t>(rows);
}

StepCounts build_step_arrays(const StepPlan& plan, const KvLayout& layout, int32_t window, const StepArrays& out) {
  StepCounts counts;
  for (const SequenceRows& sequence : plan.sequences) {
    const int32_t encoder_first = counts.encoder;
    const int32_t decoder_first = counts.decoder;
    const Position end = sequence.begin + sequence.count;
    const Position decoder_begin = std::clamp(sequence.decoder_begin, sequence.begin, end);
    counts.candidate_window |= end > sequence.decoder_begin - (window - 1);
    const Position candidate_floor = plan.truncate_candidate_window ? sequence.window_floor : sequence.encoder_window_floor;
    for (Position position = sequence.begin; position < end; ++position) {
      const int32_t r = counts.encoder++;
      fill_row(out.encoder, r, sequence, position, layout.ring_slots);
      out.tokens[r] = plan.tokens[static_cast<size_t>(sequence.first_token + (position - sequence.begin))];
      out.image_row[r] = -1;
      out.encoder.spans[r] = window_span(position, window, sequence.encoder_window_floor, sequence.begin, encoder_first);
      if (position < decoder_begin) continue;
      const int32_t d = counts.decoder++;
      fill_row(out.decoder, d, sequence, position, layout.ring_slots);
      out.decoder.source[d] = r;
      out.decoder.spans[d] = window_span(position, window, sequence.window_floor, decoder_begin, decoder_first);
      out.decoder.spans_candidate[d] = window_span(position, window, candidate_floor, sequence.begin, encoder_first);
    }
    for (int32_t i = counts.decoder - sequence.num_logits; i < counts.decoder; ++i) out.logit_source[counts.logits++] = i;
  }
  int32_t image_rows = 0;
  for (const ImageRows& image : plan.images) {
    for (int32_t i = 0; i < image.rows; ++i) {
      out.image_row[image.token_begin + i] = image_rows++;
      out.encoder.is_image[image.token_begin + i] = 1;
    }
  }
  for (int32_t d = 0; d < counts.decoder; ++d) out.decoder.is_image[d] = out.encoder.is_image[out.decoder.source[d]];
  *out.encoder.count = counts.encoder;
  *out.decoder.count = counts.decoder;
  *out.logit_count = counts.logits;
  counts.images = image_rows > 0;
  return counts;
}

}  // namespace deepinfer
