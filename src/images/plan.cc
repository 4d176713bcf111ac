#include "images/plan.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {

namespace {

// Pictures travelled as WebP, which ends at 16383: the largest multiple of the patch below it.
constexpr int64_t kMaxSide = 16380;
constexpr int kMaxRounds = 10;

struct Box {
  int64_t width = 0, height = 0, tokens = 0;
  bool operator==(const Box&) const = default;
};

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t tokens_of(int64_t width, int64_t height, const ImageGeometry& g) {
  const int64_t cell = int64_t{g.patch} * g.downsample;
  const int64_t columns = (width + cell - 1) / cell, rows = (height + cell - 1) / cell;
  return rows * (columns + 1) + 2;
}

Box once(int64_t w, int64_t h, const ImageGeometry& g) {
  if (w > 0 && h > 0 && w * h < g.min_pixels) {
    const double ratio = std::sqrt(static_cast<double>(g.min_pixels) / static_cast<double>(w * h));
    w = static_cast<int64_t>(static_cast<double>(w) * ratio);
    h = static_cast<int64_t>(static_cast<double>(h) * ratio);
  }
  const int64_t cell = int64_t{g.patch} * g.downsample;
  int64_t bw = round_up(w, g.patch), bh = round_up(h, g.patch);
  if (tokens_of(bw, bh, g) <= g.max_tokens) return {bw, bh, tokens_of(bw, bh, g)};
  const double q = static_cast<double>(h) / static_cast<double>(w);
  const double mw = std::sqrt((g.max_tokens - 2) / q + 0.25) - 0.5, mh = mw * q;
  if (mw < 1) {
    bw = cell, bh = (g.max_tokens - 2) / 2 * cell;
  } else if (mh < 1) {
    bw = (g.max_tokens - 3) * cell, bh = g.patch;
  } else {
    const double f = std::min(std::floor(mw) * static_cast<double>(cell) / static_cast<double>(w),
                              std::floor(mh) * static_cast<double>(cell) / static_cast<double>(h));
    bw = static_cast<int64_t>(static_cast<double>(w) * f / g.patch) * g.patch;
    bh = static_cast<int64_t>(static_cast<double>(h) * f / g.patch) * g.patch;
  }
  return {bw, bh, tokens_of(bw, bh, g)};
}

Box settled(int64_t w, int64_t h, const ImageGeometry& g) {
  Box box = once(w, h, g);
  for (int round = 0; round < kMaxRounds; ++round) {
    const Box next = once(box.width, box.height, g);
    if (next == box) break;
    box = next;
  }
  return box;
}

}  // namespace

ImagePlan plan_image(int64_t width, int64_t height, const ImageGeometry& geometry) {
  Box box = settled(width, height, geometry);
  const int64_t max_side = kMaxSide / geometry.patch * geometry.patch;
  for (int round = 0; round < kMaxRounds && std::max(box.width, box.height) > max_side; ++round) {
    box = once(std::min(box.width, max_side), std::min(box.height, max_side), geometry);
  }
  return {static_cast<int32_t>(box.width), static_cast<int32_t>(box.height), static_cast<int32_t>(box.tokens)};
}

int32_t image_tokens(int64_t width, int64_t height, const ImageGeometry& geometry) {
  return static_cast<int32_t>(settled(width, height, geometry).tokens);
}

ImageSize low_detail_size(int32_t width, int32_t height) {
  constexpr int32_t kLonger = 512;
  const int32_t longer = std::max(width, height);
  if (longer <= kLonger) return {width, height};
  const auto scaled = [&](int32_t side) {
    const auto rounded = static_cast<int32_t>(std::lround(static_cast<double>(side) * kLonger / longer));
    return std::max(1, rounded);
  };
  return {scaled(width), scaled(height)};
}

}  // namespace deepinfer
