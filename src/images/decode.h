// images/decode.h - the bytes of a picture to 8-bit RGB.
//
// The kind is told by the first bytes, never by what the client says. Transparency is laid on white; grey, palette, 1 bit,
// 16 bits and CMYK become 8-bit RGB; EXIF orientation and colour profiles are ignored; of an animation the first frame.
// Promise: any bytes; sizes are checked before memory is taken; a cut-off file is a problem, never a half picture.
// Threads: pure functions.
//
//   auto image = decode_image(bytes, {.max_side = 8192});
//   if (!image) ... image.problem()
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "images/problem.h"

namespace deepinfer {

struct RgbImage {
  int32_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]

  uint8_t* row(int32_t y) { return pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(width) * 3; }
  const uint8_t* row(int32_t y) const { return pixels.data() + static_cast<size_t>(y) * static_cast<size_t>(width) * 3; }
};

struct DecodeLimits {
  int32_t max_side = 8192;
  int32_t max_scans = 64;  // of a progressive JPEG: each one passes over all pixels
};

using DecodedImage = ImageResult<RgbImage, ImageFault>;

enum class PictureKind { kUnknown, kPng, kJpeg, kGif, kWebp };
PictureKind sniff_picture(std::string_view bytes);

DecodedImage decode_image(std::string_view bytes, const DecodeLimits& limits);

// One decoder each; REQUIRES: sniffed as such.
DecodedImage decode_png(std::string_view bytes, const DecodeLimits& limits);
DecodedImage decode_jpeg(std::string_view bytes, const DecodeLimits& limits);
DecodedImage decode_gif(std::string_view bytes, const DecodeLimits& limits);
DecodedImage decode_webp(std::string_view bytes, const DecodeLimits& limits);

// Zero sides do not decode; longer ones than the limit are too large.
Result<void> check_sides(int64_t width, int64_t height, const DecodeLimits& limits, ImageFault& fault);
// RGBA on white, cut to whole levels: the recorded pictures are darker by half a level than rounding gives.
RgbImage on_white(const std::vector<uint8_t>& rgba, int32_t width, int32_t height);

}  // namespace deepinfer
