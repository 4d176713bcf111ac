#include "policy/verification.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

// Survival never grows with the place, so every beginning of this order is a beginning of each block.
void VerificationScheduler::sort(const DraftBlocks& blocks) {
  candidates_.clear();
  for (size_t i = 0; i < blocks.limits.size(); ++i) {
    const auto row = blocks.survival.subspan(i * static_cast<size_t>(blocks.width));
    for (int32_t j = 0; j < blocks.limits[i]; ++j) {
      candidates_.push_back({row[static_cast<size_t>(j)], j, static_cast<int32_t>(i)});
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.survival != b.survival) return a.survival > b.survival;
    return a.place != b.place ? a.place < b.place : a.block < b.block;
  });
}

void VerificationScheduler::sync(const DraftBlocks& blocks, StepsPerSecond steps_per_second, std::span<int32_t> lengths) {
  std::fill(lengths.begin(), lengths.end(), 0);
  sort(blocks);
  int64_t rows = blocks.sequences;
  double tokens = static_cast<double>(rows);
  double best = tokens * steps_per_second(rows);
  for (const Candidate& candidate : candidates_) {
    tokens += candidate.survival;
    const double rate = tokens * steps_per_second(++rows);
    if (rate <= best) return;
    best = rate;
    lengths[static_cast<size_t>(candidate.block)] = candidate.place + 1;
  }
}

int64_t VerificationScheduler::capacity(const DraftBlocks& blocks, StepsPerSecond steps_per_second) {
  sort(blocks);
  double tokens = static_cast<double>(blocks.sequences);
  double best = tokens * steps_per_second(blocks.sequences);
  int64_t count = 0, best_count = 0;
  for (const Candidate& candidate : candidates_) {
    tokens += candidate.survival;
    const double rate = tokens * steps_per_second(blocks.sequences + ++count);
    if (rate > best) best = rate, best_count = count;
  }
  return best_count;
}

void VerificationScheduler::admit(const DraftBlocks& blocks, int64_t count, std::span<int32_t> lengths) {
  std::fill(lengths.begin(), lengths.end(), 0);
  sort(blocks);
  for (const Candidate& candidate : candidates_) {
    if (count-- <= 0) return;
    lengths[static_cast<size_t>(candidate.block)] = candidate.place + 1;
  }
}

void survival_of(std::span<const float> confidence_logits, std::span<const float> temperatures, std::span<float> survival) {
  double product = 1;
  for (size_t j = 0; j < confidence_logits.size(); ++j) {
    product /= 1 + std::exp(-double{confidence_logits[j]} / double{temperatures[j]});
    survival[j] = static_cast<float>(product);
  }
}

}  // namespace deepinfer
