// images/prepare.h - a decoded picture as the model reads it.
//
// Scaled to fit the planned box, centred on grey (127, 127, 127); then patches of normalised BF16 values. The content hash
// covers pixels, grid and the version of this preparation, so that equal pictures are encoded once and cache pages of
// different ones never meet.
// Promise: the same bytes give the same pixels and the same hash on every machine.
// Threads: pure functions.
//
//   PreparedImage image = prepare_image(*decoded, "high", {});
//   auto patches = image_patches(image, 14);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "images/decode.h"
#include "images/plan.h"

namespace deepinfer {

struct PreparedImage {
  std::shared_ptr<const RgbImage> pixels;  // pictures of equal bytes share them
  int32_t tokens = 0;                      // of its span in the prompt
  std::string content_hash;                // SHA-256, 32 bytes
};

// `detail`: low shrinks first; high, original and auto are the same.
PreparedImage prepare_image(const RgbImage& image, std::string_view detail, const ImageGeometry& geometry);

// BF16 [rows * columns, 3 * patch * patch]: patches row by row, each channel, y, x; values (v / 255 - 0.5) / 0.5.
std::vector<uint16_t> image_patches(const PreparedImage& image, int32_t patch);

}  // namespace deepinfer
