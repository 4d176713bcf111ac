// A picture from a client: pixels that fill their size, prepared to whole patches, or a problem.
#include <algorithm>
#include <cstdint>

#include "base/result.h"
#include "images/resolve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)decode_data_url(bytes, 1 << 20);
  const DecodedImage image = decode_image(bytes, {.max_side = 512});
  if (!image) return 0;
  DI_CHECK(std::max(image->width, image->height) <= 512);
  DI_CHECK(image->pixels.size() == static_cast<size_t>(image->width) * static_cast<size_t>(image->height) * 3);
  const ImageGeometry small{.patch = 14, .downsample = 3, .min_pixels = 1764, .max_tokens = 64};
  const PreparedImage prepared = prepare_image(*image, size % 2 ? "low" : "high", small);
  DI_CHECK(prepared.tokens <= small.max_tokens);
  DI_CHECK(image_patches(prepared, 14).size() == prepared.pixels->pixels.size());
  return 0;
}
