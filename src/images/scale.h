// images/scale.h - scaling of RGB pictures, as the reference scales them.
//
// Threads: pure functions.
#pragma once

#include "images/decode.h"

namespace deepinfer {

// Bicubic, a = -0.75, pixel centres aligned, borders repeated, no filter when shrinking.
RgbImage scale_bicubic(const RgbImage& image, int32_t width, int32_t height);
// The mean of the area each pixel covers. REQUIRES: not larger than `image`.
RgbImage scale_area(const RgbImage& image, int32_t width, int32_t height);

}  // namespace deepinfer
