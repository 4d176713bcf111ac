// images/plan.h - which size a picture is brought to, and how many tokens it then takes.
//
// A model reads patches in cells of `downsample` x `downsample`; a row of cells ends in a NEWLINE token, START and END stand
// around all. Small pictures grow to min_pixels, large ones shrink until their tokens fit.
// Promise: terminates for any size; deterministic (double arithmetic, no contraction).
// Threads: pure functions.
//
//   ImagePlan plan = plan_image(1920, 1080, {});       // 728 x 420 with detail low, ...
#pragma once

#include <cstdint>

namespace deepinfer {

struct ImageGeometry {
  int32_t patch = 14, downsample = 3;
  int64_t min_pixels = 295936;
  int32_t max_tokens = 1024;
};

struct ImagePlan {
  int32_t width = 0, height = 0;
  int32_t tokens = 0;
  bool operator==(const ImagePlan&) const = default;
};

// The size after letter-boxing; tokens of the whole span.
ImagePlan plan_image(int64_t width, int64_t height, const ImageGeometry& geometry);
// Tokens of a picture of this size, whatever was done to it.
int32_t image_tokens(int64_t width, int64_t height, const ImageGeometry& geometry);

// Detail low: the longer side becomes at most 512 before everything else.
struct ImageSize {
  int32_t width = 0, height = 0;
};
ImageSize low_detail_size(int32_t width, int32_t height);

}  // namespace deepinfer
